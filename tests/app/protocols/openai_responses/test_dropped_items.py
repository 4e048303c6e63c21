"""Reasoning and tool calls that a policy leaves out of a response, and calls that wait."""

import json
from typing import Any

import pytest
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.support.apis.responses_api import CALL, ask, events, message, read, response, sse
from tests.support.gateways.in_process_gateway import DOCUMENTS, FALSE, TRUE, bench, policy

pytestmark = pytest.mark.anyio

RULES: dict[str, Any] = {
    "min_citations": 0,
    "contradiction_action": "block",
    "action_on_violation": "block",
    "max_unverifiable_ratio": 1.0,
    "min_grounding_score": 0.0,
}
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
REASONING = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Zebras first."}]}
LINKED = [{**DOCUMENTS[0], "url": "https://example.com/hr"}]


async def made_of(*items: dict[str, Any], mode: str, **actions: str) -> tuple[dict[str, Any], list[Any], Any]:
    """The final response, the events of a stream, and what the event log keeps of dropped content."""
    given = policy(**RULES, stream_mode="hold" if mode == "whole" else mode, **actions)
    if mode == "whole":
        b = await bench(response(*items), given)
        return json.loads((await ask(b, documents=LINKED)).body), [], b.event.request.extra.get("dropped", {})
    b = await bench(sse(events(response(*items))), given)
    reply = await ask(b, stream=True, documents=LINKED)
    assert reply.stream is not None
    data = b"".join([part async for part in reply.stream])
    await reply.stream.aclose()
    made = read(data)
    return made[-1]["response"], made, b.event.request.extra.get("dropped", {})


@pytest.mark.parametrize("mode", ["hold", "live", "final", "whole"])
@pytest.mark.parametrize(
    ("actions", "kinds", "dropped"),
    [
        ({"reasoning_action": "drop"}, ["message", "function_call", "message"], {"reasoning": 13}),
        ({"reasoning_action": "judge"}, ["message", "function_call", "message"], {"reasoning": 13}),
        ({"tool_call_action": "drop"}, ["reasoning", "message", "message"], {"tool_calls": 1}),
        (
            {"tool_call_action": "drop", "reasoning_action": "drop"},
            ["message", "message"],
            {"tool_calls": 1, "reasoning": 13},
        ),
        ({"tool_call_action": "hold"}, ["reasoning", "message", "function_call", "message"], {}),
        ({}, ["reasoning", "message", "function_call", "message"], {}),
    ],
)
async def test_policy_decides_which_items_are_sent(
    actions: dict[str, str], kinds: list[str], dropped: dict[str, int], mode: str
) -> None:
    items = [REASONING, message(TRUE), CALL, message(TRUE, item_id="msg_2")]
    final, made, counted = await made_of(*items, mode=mode, **actions)
    Response.model_validate(final)
    assert [item["type"] for item in final["output"]] == kinds
    assert counted == dropped
    assert [text["content"][0]["text"] for text in final["output"] if text["type"] == "message"] == [TRUE, TRUE]
    assert "Zebras" in json.dumps(final) or "reasoning" not in kinds
    named = {"reasoning" if kind == "reasoning" else "tool_calls" for kind in kinds if kind != "message"}
    assert set(final["grounding"].get("not_checked", ())) == named
    added = [event["output_index"] for event in made if event["type"] == "response.output_item.added"]
    assert added == (list(range(len(kinds))) if made else [])
    state = ResponseStreamState(text_format=omit, input_tools=[])
    for event in made:
        state.handle_event(EVENT.validate_python(event))


@pytest.mark.parametrize("action", ["pass", "hold"])
@pytest.mark.parametrize("mode", ["hold", "live", "final", "whole"])
async def test_no_call_is_sent_after_a_block(mode: str, action: str) -> None:
    final, made, _ = await made_of(message(FALSE), CALL, mode=mode, tool_call_action=action)
    assert "look_up" not in json.dumps([final, made])


@pytest.mark.parametrize("action", ["pass", "hold"])
@pytest.mark.parametrize("mode", ["final", "whole"])
async def test_nothing_of_a_reply_blocked_at_its_end_is_sent(mode: str, action: str) -> None:
    final, made, _ = await made_of(REASONING, CALL, message(FALSE), mode=mode, tool_call_action=action)
    assert "look_up" not in json.dumps([final, made])
    assert "Zebras" not in json.dumps([final, made])
    assert [item["type"] for item in final["output"]] == ["message"]
    state = ResponseStreamState(text_format=omit, input_tools=[])
    for event in made:
        state.handle_event(EVENT.validate_python(event))
    assert [event["output_index"] for event in made if event["type"] == "response.output_item.added"] == [0] * bool(
        made
    )
