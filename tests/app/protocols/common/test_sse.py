"""The parser of server-sent events follows the grammar and keeps every byte, however the input is cut."""

import itertools
import re
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocols.common.sse import EventTooLargeError, JsonStreamDecoder, SSEEvent, SSEParser, dump, load
from app.protocols.common.stream_events import UpstreamEvent
from judges.concurrency import FreedInSteps

Seen = list[tuple[bytes, str | None]]


def parse(pieces: Iterable[bytes]) -> list[SSEEvent]:
    parser = SSEParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close()


def seen(events: Sequence[SSEEvent]) -> Seen:
    """What a reader of the stream sees: the data of each event that has data, and its name."""
    return [(event.data, event.event) for event in events if event.data is not None]


def by_the_grammar(stream: bytes) -> Seen:
    """The same, implemented literally from the specification, line by line; the last event may be unfinished."""
    found: Seen = []
    data: list[bytes] = []
    name: str | None = None
    for line in [*re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf")), b""]:
        if not line:
            if data:
                found.append((b"\n".join(data), name))
            data, name = [], None
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode()
    return found


line_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
values = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12).map(str.encode)
fields = st.one_of(
    st.builds(lambda value: b"data: " + value, values),
    st.builds(lambda value: b"data:" + value, values),
    st.builds(lambda value: b":" + value, values),
    st.builds(lambda value: b"event: " + value, values),
    st.builds(lambda value: b"id: " + value, values),
    st.sampled_from([b"data", b"retry: 3000", b"unknown: field", b"data:", b"data: "]),
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """A valid stream: blocks of fields that end with blank lines, with mixed line ends; the last block may be
    unfinished."""
    out = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"]))
    for block in draw(st.lists(st.lists(fields, max_size=4), max_size=6)):
        for field in block:
            out += field + draw(line_ends)
        out += draw(line_ends)
    return out + draw(st.sampled_from([b"", b"", b"data: [DONE]", b"data: [DONE]\n", b": bye"]))


@st.composite
def cut_streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    stream = draw(streams())
    cuts = sorted(draw(st.sets(st.integers(0, len(stream)), max_size=12)) | {0, len(stream)})
    return stream, [stream[start:end] for start, end in itertools.pairwise(cuts)]


@given(cut_streams())
def test_chunking_does_not_change_the_events(case: tuple[bytes, list[bytes]]) -> None:
    stream, pieces = case
    assert seen(parse(pieces)) == by_the_grammar(stream)


@given(cut_streams())
def test_raw_bytes_of_all_events_add_up_to_the_input(case: tuple[bytes, list[bytes]]) -> None:
    stream, pieces = case
    assert b"".join(event.raw for event in parse(pieces)) == stream


@given(streams())
def test_byte_by_byte_input_gives_the_same_events(stream: bytes) -> None:
    events = parse(bytes([byte]) for byte in stream)
    assert seen(events) == by_the_grammar(stream)
    assert b"".join(event.raw for event in events) == stream


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_input_other_than_an_event_stream_is_kept(pieces: list[bytes]) -> None:
    assert b"".join(event.raw for event in parse(pieces)) == b"".join(pieces)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_each_line_ending_ends_an_event_at_once(end: bytes) -> None:
    parser = SSEParser()
    assert parser.feed(b"data: a" + end) == []
    events = parser.feed(end)
    assert seen(events) == [(b"a", None)]
    assert seen(parser.feed(b"data: b" + end + end)) == [(b"b", None)]


def test_crlf_split_across_chunks_is_one_line_ending() -> None:
    """An LF that arrives late causes neither an empty event nor a duplicate."""
    pieces = [b"data: a\r", b"\n\r", b"\ndata: b\r", b"\n\r", b"\n"]
    assert seen(parse(pieces)) == [(b"a", None), (b"b", None)]


def test_data_lines_of_one_event_are_joined_by_lf() -> None:
    assert seen(parse([b'data: {"a":\ndata: 1}\n\n'])) == [(b'{"a":\n1}', None)]


def test_one_space_after_the_colon_is_removed() -> None:
    assert seen(parse([b"data:x\n\ndata: x\n\ndata:  x\n\n"])) == [(b"x", None), (b"x", None), (b" x", None)]


def test_field_without_colon_has_an_empty_value() -> None:
    assert seen(parse([b"data\n\n"])) == [(b"", None)]


def test_byte_order_mark_is_ignored_only_at_the_start() -> None:
    events = parse([b"\xef\xbb", b"\xbfdata: a\n\n", b"\xef\xbb\xbfdata: b\n\n"])
    assert seen(events) == [(b"a", None)]
    assert events[0].raw == b"\xef\xbb\xbfdata: a\n\n"


@pytest.mark.parametrize("block", [b": ping\n\n", b":\n\n", b"retry: 3000\n\n", b"id: 77\n\n", b"event: noop\n\n"])
def test_comments_and_control_fields_have_no_data(block: bytes) -> None:
    events = parse([block])
    assert [event.raw for event in events] == [block]
    assert [event.data for event in events] == [None]


def test_empty_data_field_is_data() -> None:
    """The parser distinguishes it from an event without data; the caller decides whether to drop it."""
    assert seen(parse([b"data:\n\n", b"data: \n\n"])) == [(b"", None), (b"", None)]


def test_event_name_is_reported() -> None:
    assert seen(parse([b"event: error\ndata: {}\n\ndata: {}\n\n"])) == [(b"{}", "error"), (b"{}", None)]


def test_unterminated_event_is_reported_only_at_close() -> None:
    parser = SSEParser()
    assert parser.feed(b"data: [DONE]") == []
    assert parser.close() == [SSEEvent(b"data: [DONE]", b"[DONE]")]
    assert parser.close() == []


def test_character_split_across_chunks_is_decoded() -> None:
    raw = "data: 上海\n\n".encode()
    assert seen(parse([raw[:7], raw[7:10], raw[10:]])) == [("上海".encode(), None)]


def test_large_event_in_small_chunks_is_read_in_linear_time() -> None:
    """The work per call doesn't grow with the buffered data: 2 MB in pieces of 64 bytes cause no quadratic rescans."""
    body = b"data: " + b"x" * 2_000_000 + b"\n\n"
    events = parse(body[start : start + 64] for start in range(0, len(body), 64))
    assert [len(event.raw) for event in events] == [len(body)]


def test_event_without_an_end_is_rejected_at_the_limit() -> None:
    parser = SSEParser(max_event_bytes=100)
    parser.feed(b"data: " + b"x" * 90)
    with pytest.raises(EventTooLargeError, match="100 bytes"):
        parser.feed(b"x" * 10)


def test_many_small_events_in_one_chunk_are_within_the_limit() -> None:
    parser = SSEParser(max_event_bytes=100)
    assert len(parser.feed(b"data: 12345678\n\n" * 1000)) == 1000


def test_decoder_returns_the_first_of_many_events_before_it_splits_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[int] = []
    feed = SSEParser.feed

    def counted(parser: SSEParser, data: bytes) -> list[SSEEvent]:
        fed.append(len(data))
        return feed(parser, data)

    monkeypatch.setattr(SSEParser, "feed", counted)
    frames = [b'data: {"n":%d}\n\n' % number for number in range(10_000)]
    events = JsonStreamDecoder(lambda raw, _chunk: UpstreamEvent(raw=raw, parts=())).feed(b"".join(frames))
    assert next(events).raw == frames[0]
    assert sum(fed) < len(b"".join(frames)) / 4
    assert [event.raw for event in events] == frames[1:]
    assert sum(fed) == len(b"".join(frames))


@pytest.mark.parametrize("items", [[], [{"claim": "ä", "score": 0.5}] * 3, [{"n": number} for number in range(1_750)]])
def test_long_lists_are_serialized_like_others(items: list[dict[str, object]]) -> None:
    assert dump({"grounding": {"claims": FreedInSteps(items)}, "n": 1}) == dump(
        {"grounding": {"claims": items}, "n": 1}
    )


def test_long_list_with_a_lone_surrogate_is_serialized() -> None:
    value = {"claims": FreedInSteps([{"claim": "\ud83d"}] * 600)}
    assert load(dump(value)) == {"claims": [{"claim": "\ud83d"}] * 600}
