"""Unknown content from a Messages upstream: if text is held, none of it is delivered, and its kind is reported."""

import json
from typing import Any

import httpx
import pytest

from app.errors import UpstreamConnectError
from tests.support.apis.messages_api import (
    ask,
    events,
    frame,
    is_well_formed,
    parsed,
    sse,
    stream_bytes,
    streamed,
    text,
    text_of,
    tool_use,
    unary,
    whole,
)
from tests.support.gateways.in_process_gateway import FALSE, TRUE, UNKNOWN, Bench, bench, policy

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
RULES: Json = {"contradiction_action": "block", "unverifiable_action": "strip", "min_citations": 0,
               "min_grounding_score": 0.0, "max_unverifiable_ratio": 1.0}  # fmt: skip
MARK = "40 days"
HELD = pytest.mark.parametrize("mode", ["hold", "final"])
MODES = pytest.mark.parametrize("mode", ["hold", "live", "final"])


def delta(index: int = 0, **said: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": said}


def block(start: Any, index: int = 1) -> list[Json]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        {"type": "content_block_stop", "index": index},
    ]


def laid(*odd: Any) -> bytes:
    return b"".join(event if isinstance(event, bytes) else _frame(event) for event in odd)


def _frame(event: Any) -> bytes:
    return frame(event) if isinstance(event, dict) and "type" in event else f"data: {json.dumps(event)}\n\n".encode()


def inserted(at: int, *odd: Any) -> bytes:
    """A message of one text block with ``odd`` before its event ``at``: 3 is the end of the block, 4 of the message."""
    made = events(text(TRUE), pings=False)
    return laid(*made[:at], *odd, *made[at:])


def changed(at: int, *path: str, **fields: Any) -> bytes:
    """That message with ``fields`` in its event ``at``, in the object at ``path``."""
    made = events(text(TRUE), pings=False)
    found = made[at]
    for name in path:
        found = found[name]
    found.update(fields)
    return sse(made)


async def governed(data: Any, mode: str = "hold") -> Bench:
    return await bench(data, policy(**RULES, stream_mode=mode))


FRAMES: dict[str, tuple[bytes, str]] = {
    "plain text": (inserted(3, f"data: {FALSE}\n\n".encode()), "unreadable"),
    "array": (inserted(3, [delta(type="text_delta", text=FALSE)]), "unreadable"),
    "string": (inserted(3, FALSE), "unreadable"),
    "no type": (inserted(3, {"delta": {"type": "text_delta", "text": FALSE}}), "unknown"),
    "type that is text": (inserted(3, {"type": FALSE}), "unknown"),
    "type that is a list": (inserted(3, {"type": [FALSE]}), "unknown"),
    "unknown type": (inserted(3, {"type": "text_snapshot", "text": FALSE}), "text_snapshot"),
    "old completion": (inserted(3, {"type": "completion", "completion": FALSE}), "completion"),
    "ping": (inserted(3, {"type": "ping", "text": FALSE}), "unknown_fields"),
    "delta of no type": (inserted(3, delta(text=FALSE)), "unknown"),
    "delta of another type": (inserted(3, delta(type="output_text_delta", text=FALSE)), "output_text_delta"),
    "thought in a text block": (inserted(3, delta(type="thinking_delta", thinking=FALSE)), "thinking_delta"),
    "delta that is a string": (inserted(3, {**delta(), "delta": FALSE}), "unknown"),
    "text that is a list": (inserted(3, delta(type="text_delta", text=[FALSE])), "unknown_fields"),
    "citation that is a string": (inserted(3, delta(type="citations_delta", citation=FALSE)), "citations_delta"),
    "delta of a block never begun": (inserted(3, delta(9, type="thinking_delta", thinking=FALSE)), "thinking_delta"),
    "delta of another type in a call": (
        inserted(4, block({"type": "tool_use", "input": {}})[0], delta(1, type="foo", text=FALSE), block("", 1)[1]),
        "foo",
    ),
    "block of no type": (inserted(4, *block({"text": FALSE})), "unknown"),
    "block that is a string": (inserted(4, *block(FALSE)), "unknown"),
    "block of another case": (inserted(4, *block({"type": "Text", "text": FALSE})), "unknown"),
    "block of another type": (inserted(4, *block({"type": "output_text", "text": FALSE})), "output_text"),
    "block behind the end": (inserted(5, *block({"type": "foo", "text": FALSE})), "foo"),
    "text in a call": (inserted(4, *block({"type": "tool_use", "input": {}, "text": FALSE})), "unknown_fields"),
    "content at the start": (changed(0, "message", content=[{"type": "text", "text": FALSE}]), "unknown_fields"),
    "copy at the start": (changed(0, "message", completion=FALSE), "unknown_fields"),
    "copy in a block": (changed(1, "content_block", copy=FALSE), "unknown_fields"),
    "copy in a delta": (changed(2, "delta", snapshot=FALSE), "unknown_fields"),
    "copy at a block's end": (changed(3, content_block={"type": "text", "text": FALSE}), "unknown_fields"),
    "copy at the end": (changed(4, text=FALSE), "unknown_fields"),
    "text at the end": (changed(4, "delta", text=FALSE), "unknown_fields"),
    "reason that is text": (changed(4, "delta", stop_reason=FALSE), "unknown_fields"),
    "sequence that is text": (changed(4, "delta", stop_sequence=FALSE), "unknown_fields"),
    "usage that is text": (changed(4, "usage", note=FALSE), "unknown_fields"),
}


MORE: dict[str, bytes] = {
    "comment": inserted(3, f": {FALSE}\n\n".encode()),
    "repeated key": inserted(
        3, f'data: {{"type":"content_block_stop","index":0,"note":"{FALSE}","note":1}}\n\n'.encode()
    ),
    "role": changed(0, "message", role=FALSE),
    "id": changed(0, "message", id=FALSE),
    "model": changed(0, "message", model=FALSE),
    "stop reason": changed(4, "delta", stop_reason=FALSE),
    "stop details": changed(4, "delta", stop_details={"type": FALSE, "category": FALSE, "note": FALSE}),
    "citation": inserted(
        2,
        delta(type="citations_delta", citation={"type": "char_location", "cited_text": FALSE, "document_title": FALSE}),
    ),
}


@MODES
@pytest.mark.parametrize("name", MORE)
async def test_invalid_field_values_are_left_out(name: str, mode: str) -> None:
    seen = (await stream_bytes(await governed(MORE[name], mode))).decode()
    assert MARK not in seen
    assert TRUE in "".join(each["delta"].get("text", "") for each in parsed(seen.encode()) if "delta" in each)


@MODES
@pytest.mark.parametrize("name", FRAMES)
async def test_unknown_fields_are_left_out_and_named(name: str, mode: str) -> None:
    data, told = FRAMES[name]
    seen = await stream_bytes(await governed(data, mode))
    assert MARK not in seen.decode()
    made = parsed(seen)
    assert is_well_formed(made)
    assert told in made[-2]["grounding"]["not_checked"]
    body = await unary(await governed(data, mode))
    assert MARK not in json.dumps(body)
    assert text_of(body) == TRUE
    assert told in body["grounding"]["not_checked"]


@pytest.mark.parametrize("name", FRAMES)
async def test_unknown_fields_pass_without_a_policy(name: str) -> None:
    data, _ = FRAMES[name]
    assert await stream_bytes(await bench(data), documents=None) == data


@HELD
@pytest.mark.parametrize(
    "odd",
    [
        frame({**delta(type="text_delta", text=f" {FALSE}"), "x": float("nan")}),
        frame(delta(type="text_delta", text=f" {FALSE}Q")).replace(b"Q", b"\xff"),
        frame(delta(type="text_delta", text=f" {FALSE}Q")).replace(b"Q", b"\\ud800"),
        frame(delta(type="text_delta", text=f" {FALSE}Q")).replace(b"Q", b"\x01"),
    ],
    ids=["nan", "bad UTF-8", "half a character", "control character"],
)
async def test_text_in_json_for_lenient_clients_is_judged(odd: bytes, mode: str) -> None:
    seen = await stream_bytes(await governed(inserted(3, odd), mode))
    assert MARK not in seen.decode()
    assert parsed(seen)[-2]["grounding"]["action"] == "block"


async def test_lone_surrogate_is_answered() -> None:
    said = f"{TRUE} So it is \ud83d"
    answer = whole(text(TRUE))
    answer["content"][0]["text"] = said
    data = json.dumps(answer).encode()
    assert text_of(await unary(await bench(lambda _: httpx.Response(200, content=data)))) == said


async def test_fields_of_message_stop_are_left_out() -> None:
    for at, data in ((5, changed(5, message={"content": [{"type": "text", "text": FALSE}]})), (4, None)):
        made = events(text(TRUE), pings=False)
        made[5]["text"] = FALSE
        data = data or sse(made[:at] + made[5:])  # nothing says why it ends
        assert MARK not in (await stream_bytes(await governed(data))).decode()
        assert await stream_bytes(await bench(data), documents=None) == data


async def test_lines_besides_data_are_left_out() -> None:
    odd = f": note\n{FALSE}\nevent: {FALSE}\n\ndata:\n\n".encode()
    data = inserted(3, odd)
    seen = await stream_bytes(await governed(data))
    assert b"note" not in seen
    assert MARK not in seen.decode()
    assert await stream_bytes(await bench(data), documents=None) == data


async def test_blocks_after_a_removed_one_are_renumbered() -> None:
    made = events([{"type": "output_text", "text": FALSE}], text(TRUE), tool_use())
    seen = parsed(await stream_bytes(await governed(sse(made))))
    assert is_well_formed(seen)


@HELD
async def test_error_has_only_known_fields(mode: str) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Busy", "text": FALSE}, "content": FALSE}
    seen = parsed(await stream_bytes(await governed(inserted(4, error), mode)))
    assert [e for e in seen if e["type"] == "error"] == [
        {"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}
    ]
    for odd, message in (
        ({"type": "error", "error": "Busy"}, "Busy"),
        ({"type": "error", "error": [FALSE]}, "reported"),
    ):
        seen = parsed(await stream_bytes(await governed(inserted(4, odd), mode)))
        assert [message in event["error"]["message"] for event in seen if event["type"] == "error"] == [True]
        with pytest.raises(UpstreamConnectError):
            await unary(await governed(inserted(4, odd), mode))


UNREADABLE = {
    "empty": b"{}",
    "content that is a string": json.dumps({**whole(text(TRUE)), "content": FALSE}).encode(),
    "error": b'{"error": {"message": "no"}}',
    "error of the API's kind": b'{"type": "error", "content": [{"type": "text", "text": "40 days"}]}',
    "no JSON": b"<html>",
    "array": b"[]",
}


@pytest.mark.parametrize("name", UNREADABLE)
async def test_malformed_message_is_rejected_unless_it_passes_untouched(name: str) -> None:
    body = UNREADABLE[name]

    def answer(_: Any) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "application/json"}, content=body)

    with pytest.raises(UpstreamConnectError) as caught:
        await ask(await governed(answer))
    assert MARK not in caught.value.message
    assert (await ask(await bench(answer), documents=None)).body == body
    assert MARK not in (await stream_bytes(await governed(answer))).decode()


@pytest.mark.parametrize("first", [1, 4, 5])
async def test_stream_without_message_start_is_rejected(first: int) -> None:
    data = sse(events(text(FALSE), pings=False)[first:])
    with pytest.raises(UpstreamConnectError):
        await ask(await governed(data))
    assert (await ask(await bench(data), documents=None)).body == data


@pytest.mark.parametrize("citations", ["abc", {"a": "b"}, [FALSE], 3, None])
async def test_malformed_citations_are_left_out(citations: Any) -> None:
    answer = whole(text(TRUE))
    answer["content"][0]["citations"] = citations
    body = await unary(await governed(answer))
    assert text_of(body) == TRUE
    assert MARK not in json.dumps(body)
    made = events(text(TRUE))
    made[1]["content_block"]["citations"] = citations
    assert MARK not in (await stream_bytes(await governed(sse(made)))).decode()


@pytest.mark.parametrize("reason", [["end_turn"], {"a": 1}, 3, FALSE, "x" * 41, "forty_days", "eos"])
async def test_unknown_stop_reason_becomes_end_turn(reason: Any) -> None:
    b = await governed(changed(4, "delta", stop_reason=reason))
    made = parsed(await stream_bytes(b))
    assert made[-2]["delta"]["stop_reason"] == "end_turn"
    assert b.event.request.finish_reason == "end_turn"


@pytest.mark.parametrize("rules", [{}, {"stream_mode": "final"}])
async def test_unknown_stop_reason_becomes_end_turn_in_every_mode(rules: dict[str, Any]) -> None:
    data = changed(4, "delta", stop_reason="forty_days")
    annotated = parsed(await stream_bytes(await bench(data)))
    held = parsed(await stream_bytes(await bench(data, policy(**rules))))
    assert [made[-2]["delta"]["stop_reason"] for made in (annotated, held)] == ["end_turn", "end_turn"]


async def test_stop_sequence_is_reported() -> None:
    data = changed(4, "delta", stop_reason="stop_sequence", stop_sequence="The end.")
    made = parsed(await stream_bytes(await governed(data), stop_sequences=["The end."]))
    assert made[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "The end."}


async def test_refusal_is_explained_and_named() -> None:
    details = {"type": "refusal", "category": None, "explanation": "It may do harm."}
    made = parsed(await stream_bytes(await governed(changed(4, "delta", stop_reason="refusal", stop_details=details))))
    assert made[-2]["delta"]["stop_details"] == details
    assert made[-2]["grounding"]["not_checked"] == ["refusal"]


async def test_known_fields_of_the_end_are_kept() -> None:
    usage = {"output_tokens": 9, "iterations": [{"type": "message", "output_tokens": 9}], "service_tier": "standard"}
    end = {"stop_details": None, "container": {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}}
    data = changed(4, usage=usage, delta={"stop_reason": "end_turn", "stop_sequence": None, **end})
    made = parsed(await stream_bytes(await governed(data)))
    assert made[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None, **end}
    assert made[-2]["usage"] == usage
    assert "not_checked" not in made[-2]["grounding"]


async def test_known_blocks_pass_with_their_known_fields() -> None:
    kinds: list[Json] = [
        {"type": "redacted_thinking", "data": "eA=="},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "leave"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result"}]},
        {"type": "container_upload", "file_id": "file_1"},
        {"type": "compaction", "content": None},
    ]
    blocks = [[kind] for kind in kinds]
    blocks[-1].append({"type": "compaction_delta", "content": "They asked of leave."})
    made = parsed(await stream_bytes(await governed(streamed(*blocks, text(TRUE), pings=False))))
    assert [event["content_block"] for event in made if event["type"] == "content_block_start"][:5] == kinds
    body = await unary(await governed(streamed(*blocks, text(TRUE))))
    assert body["content"][:5] == [*kinds[:-1], {"type": "compaction", "content": "They asked of leave."}]
    assert body["grounding"]["not_checked"] == sorted(kind["type"] for kind in kinds)


async def test_block_that_is_resumed_keeps_its_citations() -> None:
    made = events(text(f"{TRUE} ", citations=[cite(TRUE)]), text(f"{TRUE} "), pings=False)
    again = delta(0, type="text_delta", text=TRUE)
    seen = parsed(await stream_bytes(await governed(sse([*made[:8], again, *made[8:]]))))
    said = [e["delta"].get("text", "") for e in seen if e["type"] == "content_block_delta"]
    assert "".join(said) == f"{TRUE} {TRUE} {TRUE}"
    assert cite(TRUE) in [e["delta"].get("citation") for e in seen if e["type"] == "content_block_delta"]


def cite(said: str, **fields: Any) -> Json:
    return {"type": "char_location", "cited_text": said, "document_index": 0, **fields}


@HELD
@pytest.mark.parametrize("asked", [stream_bytes, ask])
@pytest.mark.parametrize(
    "blocks",
    [
        [text(f"{TRUE} ", UNKNOWN, citations=[cite(UNKNOWN)])],
        [text(f"{TRUE} ", UNKNOWN, citations=[cite(f"As told: {UNKNOWN} So there.")])],
        [text(f"{TRUE} ", UNKNOWN, citations=[cite(" ".join(UNKNOWN.split()[:5]))])],
        [text(f"{TRUE} ", UNKNOWN, citations=[cite("x", document_title=UNKNOWN)])],
        [text(f"{UNKNOWN} ", TRUE, citations=[cite("Bicycles")])],
        [text(f"{UNKNOWN} "), text(TRUE, citations=[cite(UNKNOWN)])],
    ],
    ids=["it", "more", "part", "title", "place", "other block"],
)
async def test_citations_of_withheld_text_are_withheld(blocks: list[list[Json]], asked: Any, mode: str) -> None:
    answer = await asked(await governed(streamed(*blocks), mode))
    seen = answer if isinstance(answer, bytes) else answer.body
    assert TRUE in seen.decode()
    assert "Bicycles" not in seen.decode()


async def test_quotation_of_a_document_is_sent_even_if_that_text_was_withheld() -> None:
    cited = cite(TRUE)
    body = await unary(await governed(whole(text(f"{TRUE} ", UNKNOWN, citations=[cited]))))
    assert cited in body["content"][0]["citations"]


async def test_unknown_title_is_not_quoted_in_a_decision() -> None:
    answer = streamed(text(TRUE, citations=[cite("x", document_index=9, document_title=FALSE)]))
    b = await bench(answer, policy(**RULES, require_valid_citations=True))
    await stream_bytes(b)
    assert MARK not in repr(b.events.written)
    assert "Citation … names no document" in repr(b.events.written)
