"""Server-sent events: a parser that preserves every byte, and streams of JSON objects that end with ``[DONE]``, as in
OpenAI's completion APIs.

The grammar is defined in WHATWG HTML, section 9.2. Each event keeps its raw bytes next to the parsed ``data``, so that
unchanged events can be forwarded byte for byte. The raw bytes of all events, joined, equal the input.
"""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import orjson
from msgspec import Struct

from app.errors import UpstreamConnectError
from app.protocols.common.known_fields import KnownFields, repeats_a_key
from app.protocols.common.stream_events import EndOfReply, Passthrough, UpstreamEvent
from judges.concurrency import MAX_INLINE_REPLY_CHARS, FreedInSteps, run

# A blank line ends an event. The groups are atomic: CR LF is one line ending, never a CR ending followed by an LF
# ending.
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLargeError(ValueError):
    """An event exceeds the size limit."""


class SSEEvent(Struct, frozen=True):
    """A server-sent event. ``data`` is None if the event has no ``data:`` field, for example because it is only a
    comment."""

    raw: bytes
    data: bytes | None
    event: str | None = None


class SSEParser:
    """Parses a stream of bytes, which may be split anywhere, into complete events.

    ``max_event_bytes`` limits the size of an unfinished event.
    """

    def __init__(self, *, max_event_bytes: int = 16 * 1024 * 1024) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._first = True
        self._max_event_bytes = max_event_bytes

    def feed(self, data: bytes) -> list[SSEEvent]:
        """Process the next bytes. Return the events that they complete, in order. Raises EventTooLargeError."""
        buffer = self._buffer
        if not buffer and b"\r" not in data and data.find(b"\n\n") == len(data) - 2 >= 0:
            return [self._event(data)]  # exactly one event: the usual case in a stream
        buffer += data
        events: list[SSEEvent] = []
        start = 0
        while (match := _EVENT_END.search(buffer, max(start, self._scanned))) is not None:
            events.append(self._event(bytes(buffer[start : match.end()])))
            start = self._scanned = match.end()
        if start:
            del buffer[:start]
        # An incomplete end of an event has at most three bytes: CR LF CR.
        self._scanned = max(0, len(buffer) - 3)
        if len(buffer) > self._max_event_bytes:
            raise EventTooLargeError(f"a server-sent event exceeds {self._max_event_bytes} bytes")
        return events

    def close(self) -> list[SSEEvent]:
        """End the input. Return the last event, even if its blank line is missing."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._scanned = 0
        return [self._event(rest)] if rest else []

    def _event(self, raw: bytes) -> SSEEvent:
        body = raw
        if self._first:
            self._first = False
            body = raw.removeprefix(_BOM)
        if body.startswith(b"data: ") and body.endswith(b"\n\n") and body.find(b"\n") == len(body) - 2:
            line = body[6:-2]
            if b"\r" not in line:
                return SSEEvent(raw, line)
        return _parse(raw, body)


def _parse(raw: bytes, body: bytes) -> SSEEvent:
    data: list[bytes] = []
    name: str | None = None
    for line in _LINE_END.split(body):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return SSEEvent(raw, b"\n".join(data) if data else None, name)


_DONE = b"data: [DONE]\n\n"
_ITEMS_AT_ONCE = 500
_PARSED_AT_ONCE = 16_384
"""The number of bytes that are split into events at a time. A fast upstream may send hundreds of events at once.
Splitting all of them would block other tasks for several milliseconds."""


class JsonStreamDecoder:
    """Decodes upstream bytes into events. ``read`` builds an event from a frame's bytes and its JSON object. With
    ``fields``, the reply is rebuilt from known fields, so comments, frames with duplicate keys and unreadable frames
    are left out. ``shortcut`` may build the event directly from a frame's data.
    """

    def __init__(
        self,
        read: Callable[[bytes, dict[str, Any]], UpstreamEvent],
        fields: KnownFields | None = None,
        shortcut: Callable[[bytes], UpstreamEvent | None] | None = None,
    ) -> None:
        self._shortcut = shortcut
        self._parser = SSEParser()
        self._read = read
        self._fields = fields
        self._ids_seen = False

    def feed(self, data: bytes) -> Iterator[UpstreamEvent]:
        for start in range(0, len(data), _PARSED_AT_ONCE):
            try:
                events = self._parser.feed(data[start : start + _PARSED_AT_ONCE])
            except EventTooLargeError as error:
                raise UpstreamConnectError(f"The upstream's reply is malformed: {error}.") from None
            for event in events:
                if (read := self._event(event)) is not None:
                    yield read

    def close(self) -> Iterator[UpstreamEvent]:
        for event in self._parser.close():
            # The last event lacks its blank line. Add it, because the next event would otherwise become part of this
            # one.
            if (read := self._event(SSEEvent(event.raw + b"\n\n", event.data, event.event))) is not None:
                yield read

    def _event(self, event: SSEEvent) -> UpstreamEvent | None:
        """Return the event, or None if clients don't receive it."""
        data = event.data
        if data is None:
            return self._without_data(event)
        if self._shortcut is not None and (made := self._shortcut(data)) is not None:
            return made
        if not self._ids_seen and b"id:" in event.raw:
            self._ids_seen = b"\nid:" in b"\n" + event.raw.replace(b"\r", b"\n")
        data = data.strip()
        if not data:
            return None  # clients would try to parse this keep-alive
        if data == b"[DONE]":
            raw = event.raw if self._fields is None else _DONE
            return UpstreamEvent(raw=raw, parts=(EndOfReply(raw),))
        chunk = load(data)
        fault = "unreadable" if not isinstance(chunk, dict) else None
        if fault is None and self._fields is not None and repeats_a_key(data, chunk):
            fault = "repeated_key"
        if fault is None:
            return self._read(event.raw, chunk)
        raw = event.raw if self._fields is None else b""
        if self._fields is not None:
            self._fields.leave_out(fault)
        return UpstreamEvent(raw=raw, parts=(Passthrough(raw=raw, choice=0, unchecked=fault, opaque=True),))

    def _without_data(self, event: SSEEvent) -> UpstreamEvent | None:
        """Return the event for a frame without data. Comments are forwarded. Frames with only control fields aren't
        forwarded, because clients treat them as empty events. Once an event has had an id, clients treat even a comment
        followed by a blank line as an empty event, so the blank line is left out."""
        lines = [line for line in event.raw.replace(b"\r", b"\n").split(b"\n") if line]
        comments = [line for line in lines if line.startswith(b":")]
        if not comments:
            return None
        if self._fields is not None:
            self._fields.leave_out("comment")
            return None
        raw = event.raw
        if self._ids_seen or len(comments) < len(lines):
            raw = b"".join(comment + b"\n" for comment in comments)
        return UpstreamEvent(raw=raw, parts=(Passthrough(raw=raw),))


async def decode_chunks(
    body: AsyncIterator[bytes],
    content_type: str,
    *,
    chunks_of: Callable[[Mapping[str, Any]], Iterator[dict[str, Any]]],
    read: Callable[[bytes, dict[str, Any]], UpstreamEvent],
    fields: KnownFields | None = None,
    shortcut: Callable[[bytes], UpstreamEvent | None] | None = None,
) -> AsyncGenerator[UpstreamEvent, None]:
    """Yield the events of a reply, which is either a stream of chunks or a whole body that ``chunks_of`` splits into
    chunks. For ``fields`` and ``shortcut``, see ``JsonStreamDecoder``. If a whole reply has a duplicate key, the last
    value is used."""
    if "event-stream" not in content_type:
        whole = b"".join([data async for data in body])
        is_short = len(whole) <= MAX_INLINE_REPLY_CHARS
        reply = await run(is_short, read_object, whole)
        if fields is not None and await run(is_short, repeats_a_key, whole, reply):
            fields.leave_out("repeated_key")
        for chunk in chunks_of(reply):
            yield read(b"", chunk)
        yield UpstreamEvent(raw=b"", parts=(EndOfReply(last=True),))
        return
    decoder = JsonStreamDecoder(read, fields, shortcut)
    async for data in body:
        for event in decoder.feed(data):
            yield event
    for event in decoder.close():
        yield event


def load(data: bytes) -> Any:
    """Parse ``data`` as leniently as clients do. Return the JSON value, or None if it is not JSON.

    Lone surrogates, stray bytes, NaN and long integers are accepted.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return json.loads(data.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            return None


def dump(value: Any) -> bytes:
    """Serialize ``value`` as JSON. Lone surrogates are escaped, because the client may join two of them into one
    character."""
    try:
        return orjson.dumps(value, _in_pieces, orjson.OPT_PASSTHROUGH_SUBCLASS)
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(value, separators=(",", ":")).encode()


def _in_pieces(value: Any) -> orjson.Fragment:
    """Serialize a long list a few hundred items at a time. Serializing all claims of a long reply at once would hold
    the interpreter lock for a long time, even in a thread. Raises TypeError for any other value."""
    if not isinstance(value, FreedInSteps):
        raise TypeError
    pieces = (value[start : start + _ITEMS_AT_ONCE] for start in range(0, len(value), _ITEMS_AT_ONCE))
    return orjson.Fragment(b"[" + b",".join([orjson.dumps(piece)[1:-1] for piece in pieces]) + b"]")


def frame_of(chunk: Mapping[str, Any]) -> bytes:
    """Build the frame for ``chunk``."""
    return b"data: " + dump(chunk) + b"\n\n"


def done_frame(raw: bytes) -> bytes:
    """Return the last frame of a stream. If the upstream sent one, this is ``raw``, completed with a blank line if
    necessary."""
    if raw.endswith(b"\r\n\r"):
        return raw + b"\n"  # the frame ends in CR LF CR LF, but the last LF hasn't arrived yet
    return raw if raw.endswith((b"\n\n", b"\r\r", b"\r\n\r\n")) else _DONE


def objects_in(raw: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in complete frames."""
    for event in SSEParser().feed(raw):
        if event.data is not None and is_object(event.data):
            yield load(event.data)


def is_object(body: bytes) -> bool:
    """Return whether ``body`` is a JSON object."""
    return isinstance(load(body), dict)


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a whole reply. Raises UpstreamConnectError if the reply is not a JSON object."""
    value = load(body)
    if not isinstance(value, dict):
        raise UpstreamConnectError("The upstream's reply is not a JSON object.")
    return value
