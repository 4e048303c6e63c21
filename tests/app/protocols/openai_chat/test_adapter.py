"""Upstream chunks to events, and outputs to chunks."""

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.errors import UpstreamConnectError
from app.protocols.common.stream_events import (
    ChoiceFinish,
    EndOfReply,
    Passthrough,
    ReplyError,
    ReplyStart,
    TextDelta,
    UpstreamEvent,
    Usage,
)
from app.protocols.openai_chat.adapter import ChatAdapter
from tests.support.gateways.in_process_gateway import USAGE, chunk, sse

pytestmark = pytest.mark.anyio
ADAPTER = ChatAdapter()


async def decode(*pieces: bytes, kind: str = "text/event-stream") -> list[UpstreamEvent]:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return [event async for event in ADAPTER.decode(body(), kind)]


async def read(*pieces: bytes, kind: str = "text/event-stream") -> list[UpstreamEvent]:
    """The events without the start of the reply."""
    events = await decode(*pieces, kind=kind)
    return [
        replace(event, parts=tuple(part for part in event.parts if not isinstance(part, ReplyStart)))
        for event in events
    ]


async def only(piece: bytes) -> UpstreamEvent:
    (event,) = await read(piece)
    return event


def frame(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


class TestStart:
    async def test_first_chunk_with_a_model_starts_the_reply(self) -> None:
        nameless = {name: value for name, value in chunk({"content": "a"}).items() if name != "model"}
        events = await decode(sse(nameless, chunk({"content": "b"}), chunk({"content": "c"}), done=False))
        starts = [[part for part in event.parts if isinstance(part, ReplyStart)] for event in events]
        assert starts == [[], [ReplyStart(model="m-1")], []]

    async def test_error_does_not_start_the_reply(self) -> None:
        (event,) = await decode(frame({"model": "m-1", "error": {"message": "no"}}))
        assert not any(isinstance(part, ReplyStart) for part in event.parts)


class TestEvents:
    async def test_text_carries_its_frame(self) -> None:
        (part,) = (await only(frame(chunk({"content": "Hi"})))).parts
        assert isinstance(part, TextDelta)
        assert (part.choice, part.text, part.remainder) == (0, "Hi", None)

    async def test_chunk_with_role_and_text_is_split(self) -> None:
        (part,) = (await only(frame(chunk({"role": "assistant", "content": "Hi"})))).parts
        assert isinstance(part, TextDelta)
        assert part.remainder is not None
        assert part.remainder["choices"][0]["delta"] == {"role": "assistant", "content": ""}

    async def test_text_and_finish_in_one_chunk_are_two_parts(self) -> None:
        parts = (await only(frame(chunk({"content": "Hi"}, "length")))).parts
        assert [type(part) for part in parts] == [TextDelta, ChoiceFinish]

    async def test_empty_finish_reason_is_ignored(self) -> None:
        (part,) = (await only(frame(chunk({"content": "Hi"}, "")))).parts
        assert isinstance(part, TextDelta)

    async def test_reasoning_on_a_finishing_chunk_precedes_the_finish(self) -> None:
        passing, finish = (await only(frame(chunk({"reasoning_content": "Hm"}, "stop")))).parts
        assert isinstance(passing, Passthrough)
        assert passing.unchecked == "reasoning_content"
        assert b'"finish_reason":null' in passing.raw
        assert isinstance(finish, ChoiceFinish)

    async def test_several_choices_in_one_chunk_are_separated(self) -> None:
        both = {
            **chunk({}),
            "choices": [chunk({"content": "a"})["choices"][0], chunk({"content": "b"}, index=1)["choices"][0]],
        }
        parts = (await only(frame(both))).parts
        assert [(p.choice, p.text, len(p.frame.json["choices"])) for p in parts if isinstance(p, TextDelta)] == [
            (0, "a", 1), (1, "b", 1),
        ]  # fmt: skip

    async def test_typed_parts_yield_their_text_and_keep_the_rest(self) -> None:
        content = [{"type": "thinking", "thinking": "x"}, {"type": "text", "text": "Hi"}, {"type": "new"}]
        passing, text = (await only(frame(chunk({"content": content})))).parts
        assert isinstance(passing, Passthrough)
        assert passing.unchecked == "content_parts"
        assert isinstance(text, TextDelta)
        assert (text.text, text.frame.as_list) == ("Hi", True)
        assert text.remainder is not None
        assert text.remainder["choices"][0]["delta"]["content"] == [content[0], content[2]]

    async def test_usage_is_read_alone_or_on_a_chunk(self) -> None:
        (alone,) = (await only(frame(USAGE))).parts
        assert isinstance(alone, Usage)
        assert (alone.prompt_tokens, alone.completion_tokens, alone.raw) == (7, 5, frame(USAGE))
        text, beside = (await only(frame({**chunk({"content": "a"}), "usage": USAGE["usage"]}))).parts
        assert isinstance(text, TextDelta)
        assert isinstance(beside, Usage)
        assert beside.frame is None

    @pytest.mark.parametrize("error", ["slow down", {"message": "slow down"}])
    async def test_error_is_a_failure_in_either_format(self, error: Any) -> None:
        (part,) = (await only(frame({"error": error}))).parts
        assert part == ReplyError(message="slow down", raw=frame({"error": error}))

    async def test_chunk_without_choices_passes(self) -> None:
        assert (await only(b"data: {}\n\n")).parts == (Passthrough(raw=b"data: {}\n\n"),)

    @pytest.mark.parametrize(
        "odd", [b"{broken", b"5", b'{"choices":5}', b'{"choices":[5]}', b"[{}]", b"{}{}", b"[" * 5000, b'{"a":1,}']
    )
    async def test_unreadable_events_are_reported(self, odd: bytes) -> None:
        (part,) = (await only(b"data: " + odd + b"\n\n")).parts
        assert isinstance(part, Passthrough)
        assert part.opaque
        assert part.unchecked

    @pytest.mark.parametrize(
        ("odd", "text"),
        [
            (b'"content":"\\ud83d"', "\ud83d"),
            (b'"content":"a\xffb"', "a\N{REPLACEMENT CHARACTER}b"),
            (b'"content":"a\tb"', "a\tb"),
            (b'"content":"a","x":NaN', "a"),
        ],
    )
    async def test_json_that_clients_tolerate_is_read(self, odd: bytes, text: str) -> None:
        parts = (await only(b'data: {"choices":[{"index":0,"delta":{' + odd + b"}}]}\n\n")).parts
        assert [part.text for part in parts if isinstance(part, TextDelta)] == [text]

    @pytest.mark.parametrize("name", ["message", "text"])
    async def test_misplaced_text_is_left_out_and_reported_as_unchecked(self, name: str) -> None:
        odd = chunk({"content": "Hi"})
        odd["choices"][0][name] = "Secret"
        parts = (await only(frame(odd))).parts
        assert [part.unchecked for part in parts if isinstance(part, Passthrough)] == [name]
        assert "Secret" not in repr(parts)

    async def test_error_carries_no_text(self) -> None:
        (part,) = (await only(frame({**chunk({"content": "Secret"}), "error": "x"}))).parts
        assert isinstance(part, ReplyError)
        assert b"Secret" not in part.raw

    @pytest.mark.parametrize("odd", ['{"choices":[{"index":"x","delta":[]}]}', '{"choices":[{}]}'])
    async def test_malformed_choices_pass(self, odd: str) -> None:
        event = await only(f"data: {odd}\n\n".encode())
        assert all(isinstance(part, Passthrough) for part in event.parts)

    async def test_comments_pass_and_events_without_data_do_not(self) -> None:
        events = await read(b": ping\n\n", b"retry: 5\n\n", b"id: 7\n\n", b"data:\n\n", b"data: \n\n")
        assert [event.raw for event in events] == [b": ping\n\n"]

    async def test_comment_after_an_event_with_an_id_loses_its_blank_line(self) -> None:
        events = await read(b"id: 1\ndata: {}\n\n", b": ping\n\n", b": a\nretry: 5\n\n")
        assert [event.raw for event in events[1:]] == [b": ping\n", b": a\n"]

    async def test_unterminated_last_event_is_completed(self) -> None:
        (event,) = await read(b"data: [DONE]")
        assert event.parts == (EndOfReply(b"data: [DONE]\n\n"),)

    async def test_invalid_json_in_place_of_a_completion_is_an_upstream_error(self) -> None:
        for body in (b"<html>", b"[]", b""):
            with pytest.raises(UpstreamConnectError, match="not a JSON object"):
                await read(body, kind="application/json")

    async def test_error_body_in_place_of_a_completion_is_a_failure(self) -> None:
        events = await read(b'{"error":{"message":"no"}}', kind="application/json")
        assert isinstance(events[0].parts[0], ReplyError)


@given(cuts=st.lists(st.integers(0, 900), max_size=8))
async def test_chunking_does_not_change_the_events(cuts: list[int]) -> None:
    data = sse(
        chunk({"role": "assistant", "content": "Größe 🚆 "}), ": ping\n\n", chunk({"content": "x"}, "stop"), USAGE
    )
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in pairwise(places)]
    assert await read(*pieces) == await read(data)


class TestEncode:
    def test_done_is_always_a_whole_frame(self) -> None:
        assert ADAPTER.encode(EndOfReply()) == b"data: [DONE]\n\n"
        assert ADAPTER.encode(EndOfReply(b"data: [DONE]\n")) == b"data: [DONE]\n\n"
        for raw in (b"data: [DONE]\n\n", b"data:[DONE]\r\r", b"data: [DONE]\r\n\r\n"):
            assert ADAPTER.encode(EndOfReply(raw)) == raw
        assert ADAPTER.encode(EndOfReply(b"data: [DONE]\r\n\r")) == b"data: [DONE]\r\n\r\n"

    def test_gateway_failure_has_openai_format(self) -> None:
        error = json.loads(ADAPTER.encode(ReplyError(message="broken", broken=True)).removeprefix(b"data: "))["error"]
        assert (error["message"], error["type"]) == ("broken", "upstream_error")

    def test_usage_sent_with_text_is_not_sent_again(self) -> None:
        assert ADAPTER.encode(Usage(prompt_tokens=1, completion_tokens=1)) == b""
