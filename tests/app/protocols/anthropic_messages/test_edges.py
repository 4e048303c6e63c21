"""Invalid or rare behaviour of a Messages upstream."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.errors import UpstreamConnectError
from app.protocols.anthropic_messages import MessagesAdapter
from app.protocols.anthropic_messages.document_numbers import DocumentNumbers
from app.protocols.anthropic_messages.encoder import MessageEncoder
from app.protocols.anthropic_messages.event_types import EMPTY_TEXT, TextBlock, parse_event
from app.protocols.anthropic_messages.prompt import inject, prompt_text
from app.protocols.anthropic_messages.request import read_messages
from app.protocols.anthropic_messages.whole_reply import message_of
from app.protocols.common.stream_events import Frame, FrameRemainder, JudgedClaims, ReleasedText, TextSlice
from app.protocols.documents import Limits
from judges.testing import ScriptedJudge, entails
from judges.types import Chunk
from tests.support.apis.messages_api import (
    ask,
    events,
    frame,
    is_well_formed,
    parsed,
    sse,
    stream,
    stream_bytes,
    streamed,
    text,
    text_of,
    tool_use,
    unary,
    whole,
)
from tests.support.gateways.in_process_gateway import DOCUMENTS, FALSE, TRUE, UNKNOWN, bench, policy

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
LOOSE: Json = {"min_citations": 0, "min_grounding_score": 0.0}
WEB: Json = {"type": "web_search_result_location", "cited_text": TRUE, "url": "https://kb.test/leave",
             "title": "Leave", "encrypted_index": "x"}  # fmt: skip


def answering(content: Any, kind: str = "text/event-stream") -> Any:
    return lambda _: httpx.Response(200, headers={"content-type": kind}, content=content)


def found_in(made: list[Json]) -> Json:
    found = message_of(sse(made))
    assert found is not None
    return found


async def test_connection_lost_after_a_block_still_delivers_its_end() -> None:
    made = events(text(TRUE), stop=None)

    async def pieces() -> AsyncIterator[bytes]:
        yield sse(made)
        raise httpx.ReadError("reset")

    seen = await stream(await bench(answering(pieces())))
    assert [event["type"] for event in seen[-2:]] == ["content_block_stop", "error"]
    assert text_of(found_in(seen)) == TRUE
    untouched = await stream_bytes(await bench(sse(made)), documents=None)
    assert untouched.startswith(sse(made))


async def test_final_frame_without_a_blank_line_counts() -> None:
    made = await stream(await bench(streamed(text(TRUE)).rstrip(b"\n")))
    assert is_well_formed(made)


async def test_pings_and_comments_between_blocks_keep_their_place() -> None:
    made = events(text(f"{TRUE} "), text(UNKNOWN))
    at = next(i for i, event in enumerate(made) if event["type"] == "content_block_stop") + 1
    data = sse(made[:at]) + frame({"type": "ping"}) + b": hello\n\n" + b"data: no json\n\n" + sse(made[at:])
    assert await stream_bytes(await bench(data), documents=None) == data
    seen = await stream_bytes(await bench(data))
    assert seen.count(b"event: ping") == 2
    assert b": hello\n\n" in seen


async def test_text_without_a_block_start_is_held() -> None:
    made = [event for event in events(text(f"{TRUE} ", UNKNOWN)) if event["type"] != "content_block_start"]
    seen = await stream(await bench(sse(made)))
    assert text_of(found_in(seen)) == f"{TRUE} {UNKNOWN}"
    assert is_well_formed(seen)
    assert await stream(await bench(sse(made)), documents=None) == made


async def test_block_start_may_contain_text_and_citations() -> None:
    made = events(text(), text(f" {UNKNOWN}"))
    made[1]["content_block"] = {"type": "text", "text": TRUE, "citations": [WEB]}
    seen = await stream(await bench(sse(made)))
    assert is_well_formed(seen)
    first = found_in(seen)["content"][0]
    assert first["text"] == TRUE
    assert WEB in first["citations"]


async def test_optional_message_fields_may_be_missing() -> None:
    made = events(text(citations=[WEB]), text(TRUE))
    made[0]["message"] = {"type": "message", "content": []}
    seen = await stream(await bench(sse(made)))
    assert [block["text"] for block in found_in(seen)["content"]] == [TRUE]
    short = {name: value for name, value in whole(text(TRUE)).items() if name not in ("usage", "model", "stop_reason")}
    body = await unary(await bench(short))
    assert text_of(body) == TRUE
    assert "usage" not in body


async def test_unknown_delta_is_left_out_and_named() -> None:
    made = events(text(TRUE))
    new = {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "value": 1}}
    made.insert(3, new)
    seen = await stream(await bench(sse(made)))
    assert new not in seen
    assert seen[-2]["grounding"]["not_checked"] == ["new_delta"]
    assert is_well_formed(seen)


async def test_message_delta_without_a_reason_passes() -> None:
    made = events(text(TRUE))
    made.insert(-2, {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": 4}})
    b = await bench(sse(made))
    seen = await stream(b)
    assert [event["usage"]["output_tokens"] for event in seen if event["type"] == "message_delta"] == [4, 9]
    assert b.event.request.completion_tokens == 9


async def test_final_usage_replaces_the_prompt_count() -> None:
    made = events(text(TRUE))
    made[-2]["usage"] = {"input_tokens": 70, "output_tokens": 9}
    made[0]["message"] = None
    b = await bench(sse(made))
    await stream(b)
    assert (b.event.request.prompt_tokens, b.event.request.completion_tokens) == (70, 9)


async def test_unexpected_stream_is_merged_into_a_message() -> None:
    body = await unary(await bench(streamed(text(TRUE), tool_use(), stop="tool_use")))
    assert [block.get("input") for block in body["content"]] == [None, {"q": "leave"}]
    assert (body["stop_reason"], body["grounding"]["verdict"]) == ("tool_use", "supported")


async def test_unexpected_message_is_converted_to_a_stream() -> None:
    for documents in (DOCUMENTS, None):
        seen = await stream(await bench(whole(text(TRUE), tool_use())), documents=documents)
        assert is_well_formed(seen)
        assert [block["type"] for block in found_in(seen)["content"]] == ["text", "tool_use"]


async def test_error_in_place_of_a_message_is_an_error() -> None:
    body = b'{"type": "error", "error": {"type": "api_error", "message": "no"}}'
    b = await bench(answering(body, "application/json"))
    with pytest.raises(UpstreamConnectError, match="reported an error: no"):
        await ask(b)
    assert b.event.request.status == "upstream_error"
    assert (await ask(await bench(answering(body, "application/json")), documents=None)).body == body


async def test_oversized_event_ends_the_reply() -> None:
    made = sse(events(text(TRUE), stop=None)) + b"data: " + b"x" * (17 * 1024 * 1024)
    seen = parsed(await stream_bytes(await bench(made)))
    assert seen[-1]["error"]["message"].startswith("The upstream's reply is malformed")


async def test_events_after_a_removed_block_are_renumbered() -> None:
    """This includes the deltas of later blocks."""
    made = events(text(UNKNOWN), tool_use())
    seen = await stream(await bench(sse(made), policy(unverifiable_action="strip", **LOOSE)))
    deltas = [e["index"] for e in seen if e["type"] == "content_block_delta" and "partial_json" in e["delta"]]
    assert deltas == [0, 0]


async def test_blocked_reply_without_upstream_usage_is_counted_by_us() -> None:
    """The prompt was counted when the message began."""
    b = await bench(sse(events(text(f"{FALSE} ", UNKNOWN), stop=None)), policy(contradiction_action="block", **LOOSE))
    made = await stream(b)
    assert is_well_formed(made)
    assert made[-2]["usage"]["output_tokens"] > 0
    row = b.event.request
    assert (row.prompt_tokens, row.usage_estimated) == (42, True)
    assert row.completion_tokens == made[-2]["usage"]["output_tokens"]


@pytest.mark.parametrize("mode", ["hold", "live"])
async def test_text_about_events_is_text(mode: str) -> None:
    said = "It begins with content_block_start and ends with content_block_stop."
    made = await stream(await bench(streamed(text(said)), policy(stream_mode=mode, **LOOSE)))
    assert is_well_formed(made)
    assert text_of(found_in(made)) == said
    odd = {"type": "new_event", "of": "content_block_start"}
    data = sse([*events(text(TRUE))[:-2], odd, *events(text(TRUE))[-2:]])
    assert odd in await stream(await bench(data), documents=None)


async def test_text_after_a_removed_beginning_has_no_leading_space() -> None:
    blocks = text(UNKNOWN), text(" "), text(TRUE)
    made = await stream(await bench(streamed(*blocks), policy(unverifiable_action="strip", **LOOSE)))
    assert is_well_formed(made)
    assert [block["text"] for block in found_in(made)["content"]] == [TRUE]


async def test_citation_of_a_web_result_refers_to_the_document_at_its_url() -> None:
    rules: Json = {"min_citations": 1, "min_grounding_score": 0.0, "action_on_violation": "block"}
    judge = ScriptedJudge(lambda _, claim: entails())
    answer = whole(text(TRUE, citations=[WEB]))
    for url, reason in (("https://kb.test/leave", "end_turn"), ("https://kb.test/other", "refusal")):
        body = await unary(await bench(answer, policy(**rules), judge=judge), documents=[{"text": TRUE, "url": url}])
        assert body["stop_reason"] == reason


def test_corrected_text_goes_to_the_block_where_it_began() -> None:
    adapter = MessagesAdapter(read_messages(json.dumps(REQUEST).encode(), {}, Limits()))
    assert adapter.encode(FrameRemainder(choice=0, json={})) == b""
    assert adapter.encode(JudgedClaims(choice=0, claims=({},), frame=Frame(json={}))) == b""
    texts = {index: _block() for index in (0, 1)}
    slices = [TextSlice(frame=Frame(json={"index": index}), text=f"{index}") for index in (0, 1)]
    written = MessageEncoder(texts, DocumentNumbers((), ())).write(
        ReleasedText(choice=0, text="corrected", slices=slices)
    )
    assert [event.get("delta", {}).get("text") for event in parsed(written)] == [None, "corrected"]


def test_citation_names_the_documents_of_its_source() -> None:
    references = DocumentNumbers((), (Chunk(id="1", text="x", source="s"),))
    assert references.cited({"title": "s"}, 3).names == ("s",)
    assert references.cited({}, 3).names == ()


def _block() -> TextBlock:
    return TextBlock(start=EMPTY_TEXT)


REQUEST: Json = {
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "assistant", "content": [3, {"type": "text", "text": "Yes?"}]},
    ],
}


def test_documents_are_inserted_even_without_a_question() -> None:
    assert prompt_text(REQUEST) == "Be brief.\nYes?"
    written = inject(REQUEST, [Chunk(id="1", text=TRUE)], where="user")
    assert [message["role"] for message in written["messages"]] == ["assistant", "user"]
    assert TRUE in written["messages"][1]["content"]


def test_malformed_events_contain_no_text() -> None:
    assert parse_event(b"") == parse_event(b"data: [1]\n\n") == parse_event(b"data: {\n\n") == {}


async def test_source_of_tool_results_is_the_tool() -> None:
    b = await bench(whole(text(TRUE)), policy(evidence_from_tools=True, **LOOSE))
    call = {"type": "tool_use", "id": "toolu_1", "name": "handbook", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": TRUE}]}
    messages = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    body = await unary(b, documents=None, messages=messages)
    assert [document["source"] for document in body["grounding"]["retrieval"]["kept"]] == ["handbook"]
    (citation,) = body["content"][0]["citations"]
    assert (citation["type"], citation["cited_text"], citation["document_title"]) == ("char_location", TRUE, "handbook")
