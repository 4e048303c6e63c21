"""A governed Messages request, streamed and unary."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.errors import PolicyBlockedError
from app.protocols.anthropic_messages.whole_reply import message_of
from tests.support.apis.messages_api import (
    ask,
    events,
    is_well_formed,
    parsed,
    sse,
    stream,
    stream_bytes,
    streamed,
    text,
    text_of,
    thinking,
    tool_use,
    unary,
    whole,
)
from tests.support.gateways.in_process_gateway import FALSE, TRUE, UNKNOWN, bench, policy

pytestmark = pytest.mark.anyio
Rules = dict[str, Any]

BLOCK: Rules = {"contradiction_action": "block", "abstention_response": "Please ask HR."}
LOOSE: Rules = {"min_citations": 0, "min_grounding_score": 0.0}
STRIP: Rules = {"unverifiable_action": "strip", **LOOSE}


def types(made: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in made]


def ended(made: list[dict[str, Any]]) -> dict[str, Any]:
    (end,) = [event for event in made if event["type"] == "message_delta"]
    return end


def message(made: list[dict[str, Any]]) -> dict[str, Any]:
    found = message_of(sse(made))
    assert found is not None
    return found


async def test_supported_stream_keeps_its_events_and_reports_each_sentence() -> None:
    answer = streamed(text(TRUE, " ", "More ", "in the handbook."))
    b = await bench(answer)
    made = await stream(b)
    assert is_well_formed(made)
    assert types(made)[:3] == ["message_start", "ping", "content_block_start"]
    deltas = [event for event in made if event["type"] == "content_block_delta"]
    assert deltas[0]["delta"]["text"] == TRUE
    assert [claim["verdict"] for claim in deltas[0]["grounding"]["claims"]] == ["supported"]
    assert text_of(message(made)) == f"{TRUE} More in the handbook."
    assert ended(made)["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert ended(made)["usage"] == {"output_tokens": 9}
    assert ended(made)["grounding"]["supported_count"] == 1
    row = b.event.request
    assert (row.api, row.status, row.finish_reason) == ("messages", "completed", "end_turn")
    assert (row.prompt_tokens, row.completion_tokens, row.resolved_model) == (42, 9, "claude-1")


async def test_supporting_passage_is_cited_before_the_block_ends() -> None:
    made = await stream(await bench(streamed(text(TRUE))))
    delta = made[types(made).index("content_block_stop") - 1]["delta"]
    assert delta["type"] == "citations_delta"
    assert delta["citation"] == {
        "type": "char_location",
        "cited_text": TRUE,
        "document_index": 0,
        "document_title": "hr.pdf",
        "start_char_index": 0,
        "end_char_index": len(TRUE),
    }


async def test_contradiction_is_replaced_and_ends_as_a_refusal() -> None:
    b = await bench(streamed(text(f"{TRUE} ", f"{FALSE} ", UNKNOWN)), policy(**BLOCK))
    made = await stream(b)
    assert is_well_formed(made)
    assert text_of(message(made)) == f"{TRUE} Please ask HR."
    end = ended(made)
    assert (end["delta"]["stop_reason"], end["delta"]["stop_sequence"]) == ("refusal", None)
    assert end["usage"]["output_tokens"] > 0
    assert end["grounding"]["action"] == "block"
    assert FALSE not in json.dumps(made)
    assert (b.event.request.status, b.event.request.action) == ("blocked", "block")


async def test_blocked_message_is_replaced_and_keeps_its_usage() -> None:
    answer = whole(thinking(), text(f"{TRUE} {FALSE}"))
    body = await unary(await bench(answer, policy(**BLOCK)))
    assert body["content"] == [{"type": "text", "text": "Please ask HR."}]
    assert (body["stop_reason"], body["stop_details"]["type"]) == ("refusal", "refusal")
    assert body["usage"] == answer["usage"]
    assert body["grounding"]["verdict"] == "has_contradictions"


async def test_message_without_claims_is_unchanged() -> None:
    answer = streamed(thinking(), text(TRUE), tool_use())
    assert await stream_bytes(await bench(answer), documents=None) == answer
    raw = json.dumps(whole(text(TRUE)), indent=3)
    reply = await ask(await bench(lambda _: httpx.Response(200, text=raw)), documents=None)
    assert reply.body.decode() == raw


@pytest.mark.parametrize("mode", ["hold", "live", "final"])
async def test_other_content_passes_in_order_and_ends_a_sentence(mode: str) -> None:
    """Text before a tool call is sent before the call, even without an end mark."""
    blocks = thinking(), text("Let me look it up"), tool_use(), text(TRUE)
    b = await bench(streamed(*blocks, stop="tool_use"), policy(stream_mode=mode, **LOOSE))
    made = await stream(b)
    assert is_well_formed(made)
    result = message(made)
    assert [block["type"] for block in result["content"]] == ["thinking", "text", "tool_use", "text"]
    assert result["content"][0] == {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
    assert result["content"][1]["text"] == "Let me look it up"
    assert result["content"][2]["input"] == {"q": "leave"}
    assert result["content"][3]["text"] == TRUE
    assert result["stop_reason"] == "tool_use"
    assert result["grounding"]["not_checked"] == ["thinking", "tool_use"]
    assert result["grounding"]["supported_count"] == 1


async def test_sentence_continues_across_text_blocks() -> None:
    """A model that cites begins a new block in mid-sentence; the sentence is judged as a whole."""
    head, tail = TRUE[:15], TRUE[15:]
    made = await stream(await bench(streamed(text(head), text(tail), text(" ", UNKNOWN))))
    assert is_well_formed(made)
    claims = [c for e in made if "grounding" in e and e["type"] != "message_delta" for c in e["grounding"]["claims"]]
    assert [claim["claim"] for claim in claims] == [TRUE, UNKNOWN]
    assert [block["text"] for block in message(made)["content"]] == [head, tail, f" {UNKNOWN}"]


async def test_emptied_block_is_removed_and_later_blocks_renumbered() -> None:
    blocks = text(TRUE), text(f" {UNKNOWN}"), tool_use(), text(TRUE)
    b = await bench(streamed(*blocks), policy(**STRIP))
    made = await stream(b)
    assert is_well_formed(made)
    assert [block.get("text") for block in message(made)["content"]] == [TRUE, None, TRUE]
    assert message(made)["content"][1]["input"] == {"q": "leave"}
    body = await unary(await bench(whole(*blocks), policy(**STRIP)))
    assert body["content"] == message(made)["content"]


async def test_message_without_remaining_text_is_marked() -> None:
    made = await stream(await bench(streamed(thinking(), text(UNKNOWN)), policy(**STRIP)))
    assert is_well_formed(made)
    assert text_of(message(made)) == "I can't answer that from the documents provided."
    assert ended(made)["delta"]["stop_reason"] == "end_turn"


async def test_live_text_is_sent_at_once_and_verdicts_follow_within_the_block() -> None:
    answer = events(text(f"{TRUE} ", UNKNOWN))
    made = await stream(await bench(sse(answer)), documents=None)
    assert made == answer
    made = await stream(await bench(sse(answer), policy(stream_mode="live", **LOOSE)))
    assert is_well_formed(made)
    ours = [event for event in made if "grounding" in event and event["type"] == "content_block_delta"]
    assert [event["delta"] for event in ours] == [{"type": "text_delta", "text": ""}] * 2
    cited = [event for event in made if event.get("delta", {}).get("type") == "citations_delta"]
    assert len(cited) == 1
    rest = [event for event in made if event not in ours and event not in cited and event["type"] != "message_delta"]
    assert rest == [event for event in answer if event["type"] != "message_delta"]


async def test_blocked_live_stream_ends_immediately() -> None:
    b = await bench(streamed(text(f"{FALSE} ", UNKNOWN)), policy(stream_mode="live", **BLOCK))
    made = await stream(b)
    assert is_well_formed(made)
    assert ended(made)["delta"]["stop_reason"] == "refusal"
    assert "Please ask HR." not in text_of(message(made))


async def test_block_as_an_error_has_the_format_of_the_api() -> None:
    b = await bench(streamed(text(FALSE)), policy(on_block="error", **BLOCK))
    made = await stream(b)
    assert made[-1]["type"] == "error"
    assert made[-1]["error"]["type"] == "invalid_request_error"
    assert made[-1]["error"]["code"] == "GROUNDING_CONTRADICTION"
    assert "message_stop" not in types(made)
    with pytest.raises(PolicyBlockedError):
        await unary(await bench(whole(text(FALSE)), policy(on_block="error", **BLOCK)))


async def test_mid_stream_upstream_error_follows_the_text_before_it() -> None:
    made = events(text(f"{TRUE} ", "And"), stop=None)[:-1]
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    b = await bench(sse([*made, error]))
    seen = await stream(b)
    assert [event for event in seen if event["type"] == "error"] == [error]
    assert b.event.request.status == "upstream_error"


async def test_interrupted_stream_is_reported() -> None:
    made = events(text(f"{TRUE} ", "And"), stop=None)[:-1]
    b = await bench(sse(made))
    seen = await stream(b)
    assert seen[-1]["type"] == "error"
    assert seen[-1]["error"]["type"] == "api_error"
    assert TRUE in json.dumps(seen)
    assert b.event.request.status == "incomplete"


async def test_missing_final_event_is_added() -> None:
    seen = await stream(await bench(sse(events(text(TRUE))[:-1])))
    assert is_well_formed(seen)


async def test_truncated_reply_is_reported_as_such() -> None:
    made = await stream(await bench(streamed(text(f"{TRUE} Permanent staff also"), stop="max_tokens")))
    assert ended(made)["delta"]["stop_reason"] == "max_tokens"
    assert text_of(message(made)).endswith("also")


async def test_plain_reply_contains_no_fields_of_ours() -> None:
    answer = whole(text(TRUE))
    body = await unary(await bench(answer), grounding={"include": []})
    assert body == answer
    made = await stream(await bench(streamed(text(TRUE))), grounding={"include": []})
    assert not any("grounding" in event for event in made)
    assert message(made)["content"] == answer["content"]


async def test_tool_calls_alone_are_not_judged() -> None:
    body = await unary(await bench(whole(tool_use(), stop="tool_use"), policy(min_citations=1)))
    assert body["stop_reason"] == "tool_use"
    assert body["grounding"]["verdict"] == "not_checked"


PIECES = st.lists(
    st.sampled_from([TRUE, UNKNOWN, " ", "\n\n", "Is it so? ", "Größe 🚆, e.g. ", TRUE[:9], TRUE[9:]]), max_size=6
)
KINDS = st.lists(
    st.one_of(PIECES.map(lambda pieces: text(*pieces)), st.just(tool_use()), st.just(thinking())), max_size=5
)


@settings(max_examples=60)
@given(blocks=KINDS, cuts=st.integers(1, 9), rules=st.sampled_from([LOOSE, STRIP]))
def test_streamed_and_unary_replies_agree(blocks: list[list[dict[str, Any]]], cuts: int, rules: dict[str, Any]) -> None:
    """The message and its findings are the same for all blocks and for all cuts of their text."""
    finer = [_cut(block, cuts) for block in blocks]

    async def both() -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
        made = await stream(await bench(streamed(*finer, pings=False), policy(**rules)))
        return message(made), await unary(await bench(whole(*blocks), policy(**rules))), made

    by_stream, by_unary, made = asyncio.run(both())
    assert is_well_formed(made)
    assert by_stream["content"] == by_unary["content"]
    for name in ("verdict", "action", "total_claims", "supported_count", "claims"):
        assert by_stream["grounding"][name] == by_unary["grounding"][name]


def _cut(block: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    start, *deltas = block
    cut: list[dict[str, Any]] = [start]
    for delta in deltas:
        said = delta.get("text")
        pieces = [said[i : i + size] for i in range(0, len(said), size)] if said else []
        cut += [{**delta, "text": piece} for piece in pieces] if pieces else [delta]
    return cut


@settings(max_examples=40)
@given(blocks=KINDS, cuts=st.integers(1, 40), documents=st.booleans())
@example(blocks=[text(" ")], cuts=1, documents=False)
@example(blocks=[text(" "), tool_use(), text(TRUE)], cuts=1, documents=False)
def test_every_mode_reports_the_same_message(blocks: list[list[dict[str, Any]]], cuts: int, documents: bool) -> None:
    """The text doesn't depend on when it is sent, or on whether it passes untouched."""
    sent = events(*(_cut(block, cuts) for block in blocks), pings=False)

    async def told(mode: str) -> dict[str, Any]:
        b = await bench(sse(sent), policy(stream_mode=mode, **LOOSE))
        made = await stream(b, **({} if documents else {"documents": None}))
        assert is_well_formed(made)
        return message(made)

    async def all_modes() -> list[dict[str, Any]]:
        return [await told(mode) for mode in ("hold", "live", "final")]

    hold, live, final = asyncio.run(all_modes())
    if documents:
        assert hold["content"] == final["content"]
    assert _spoken(live) == _spoken(hold) == _spoken(final)
    assert {name: hold["grounding"][name] for name in TOLD} == {name: live["grounding"][name] for name in TOLD}


TOLD = ("verdict", "action", "total_claims", "supported_count", "claims")


def _spoken(told: dict[str, Any]) -> list[dict[str, Any]]:
    """The content without citations, and without text blocks that say nothing: empty and blank ones. A blank block
    before another block is sent only if no text is held.
    """
    blocks = [{name: value for name, value in block.items() if name != "citations"} for block in told["content"]]
    return [block for block in blocks if "text" not in block or block["text"].strip()]


@settings(max_examples=40)
@given(at=st.lists(st.integers(0, 2000), max_size=8))
def test_chunking_does_not_change_the_frames(at: list[int]) -> None:
    data = streamed(thinking("Größe"), text(TRUE, " 🚆 "), text(UNKNOWN), tool_use())
    edges = sorted({min(edge, len(data)) for edge in at})

    async def pieces(_: Any) -> Any:
        for start, end in zip([0, *edges], [*edges, len(data)], strict=True):
            yield data[start:end]

    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=pieces(request))

    async def both() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return await stream(await bench(handle)), await stream(await bench(data))

    cut, uncut = asyncio.run(both())
    assert _without_times(cut) == _without_times(uncut)
    assert is_well_formed(parsed(data))


def _without_times(made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for event in made:
        if event["type"] == "message_delta":
            event["grounding"].pop("request_id")
            event["grounding"]["judge"].pop("latency_ms")
    return made
