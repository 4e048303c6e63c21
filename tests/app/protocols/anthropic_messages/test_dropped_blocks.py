"""Thinking and tool calls that a policy leaves out of a message, and calls that wait."""

import json
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from app.protocols.anthropic_messages.whole_reply import message_of
from tests.support.apis.messages_api import (
    frame,
    is_well_formed,
    stream,
    streamed,
    text,
    thinking,
    tool_use,
    unary,
    whole,
)
from tests.support.gateways.in_process_gateway import FALSE, TRUE, bench, policy

pytestmark = pytest.mark.anyio

RULES: dict[str, Any] = {
    "min_citations": 0,
    "contradiction_action": "block",
    "action_on_violation": "block",
    "max_unverifiable_ratio": 1.0,
    "min_grounding_score": 0.0,
}
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


@pytest.mark.parametrize("mode", ["hold", "live", "final", "whole"])
@pytest.mark.parametrize(
    ("actions", "kinds", "dropped"),
    [
        ({"reasoning_action": "drop"}, ["text", "tool_use", "text"], {"reasoning"}),
        ({"reasoning_action": "judge"}, ["text", "tool_use", "text"], {"reasoning"}),
        ({"tool_call_action": "drop"}, ["thinking", "text", "text"], {"tool_calls"}),
        ({"tool_call_action": "drop", "reasoning_action": "drop"}, ["text", "text"], {"tool_calls", "reasoning"}),
        ({"tool_call_action": "hold"}, ["thinking", "text", "tool_use", "text"], set()),
        ({}, ["thinking", "text", "tool_use", "text"], set()),
    ],
)
async def test_policy_decides_which_blocks_are_sent(
    actions: dict[str, str], kinds: list[str], dropped: set[str], mode: str
) -> None:
    made: dict[str, Any]
    blocks = [thinking(), text(TRUE), tool_use(), text(TRUE)]
    given = policy(**RULES, stream_mode="hold" if mode == "whole" else mode, **actions)
    if mode == "whole":
        b = await bench(whole(*blocks, stop="tool_use"), given)
        made = await unary(b)
    else:
        b = await bench(streamed(*blocks, stop="tool_use", pings=False), given)
        events = await stream(b)
        assert is_well_formed(events)
        for event in events:
            EVENT.validate_python({k: v for k, v in event.items() if k != "grounding"})
        made = message_of(b"".join(frame(event) for event in events)) or {}
    Message.model_validate(made)
    assert [block["type"] for block in made["content"]] == kinds
    assert made["stop_reason"] == ("end_turn" if "tool_calls" in dropped else "tool_use")
    assert set(b.event.request.extra.get("dropped", ())) == dropped
    assert set(made["grounding"].get("not_checked", ())) == {"thinking", "tool_use"} & set(kinds)


@pytest.mark.parametrize("action", ["pass", "hold"])
@pytest.mark.parametrize("mode", ["hold", "live", "final", "whole"])
async def test_no_call_is_sent_after_a_block_or_before_one_at_the_end(mode: str, action: str) -> None:
    given = policy(**RULES, stream_mode="hold" if mode == "whole" else mode, tool_call_action=action)
    orders = (
        [[text(FALSE), tool_use()]]
        if mode in ("hold", "live")
        else [[text(FALSE), tool_use()], [tool_use(), text(FALSE)]]
    )
    for blocks in orders:
        if mode == "whole":
            made = json.dumps(await unary(await bench(whole(*blocks), given)))
        else:
            events = await stream(await bench(streamed(*blocks), given))
            assert is_well_formed(events)
            made = json.dumps(events)
        assert "look_up" not in made
