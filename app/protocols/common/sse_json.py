"""Server-sent frames of JSON objects that end with ``[DONE]``, as the completion APIs of OpenAI send them."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import orjson

from app.errors import UpstreamConnectError
from app.protocols.common.known_fields import KnownFields, repeats_a_key
from app.protocols.common.sse import EventTooLargeError, SSEEvent, SSEParser
from app.protocols.common.stream_events import EndOfReply, Passthrough, UpstreamEvent

_DONE = b"data: [DONE]\n\n"


class JsonStreamDecoder:
    """Decodes upstream bytes into events. ``read`` makes an event of a frame's bytes and the JSON object in it.

    ``fields``: the reply is written from known fields, so comments, frames that give a key twice and frames that cannot
    be read are left out. ``shortcut`` may make the event of a frame's data without all that.
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
        try:
            events = self._parser.feed(data)
        except EventTooLargeError as error:
            raise UpstreamConnectError(f"The upstream's reply is malformed: {error}.") from None
        for event in events:
            if (read := self._event(event)) is not None:
                yield read

    def close(self) -> Iterator[UpstreamEvent]:
        for event in self._parser.close():
            # Its blank line is missing; without one, the next event would run into it.
            if (read := self._event(SSEEvent(event.raw + b"\n\n", event.data, event.event))) is not None:
                yield read

    def _event(self, event: SSEEvent) -> UpstreamEvent | None:
        """None if clients get nothing for it."""
        data = event.data
        if data is None:
            return self._without_data(event)
        if self._shortcut is not None and (made := self._shortcut(data)) is not None:
            return made
        if not self._ids_seen and b"id:" in event.raw:
            self._ids_seen = b"\nid:" in b"\n" + event.raw.replace(b"\r", b"\n")
        data = data.strip()
        if not data:
            return None  # a keep-alive that clients would try to parse
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
        """Comments pass; control fields alone do not, since clients take them for an empty event.

        After an event with an id, even the blank line after a comment makes such an event, so it is left out.
        """
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
    """The events of a reply that is a stream of chunks, or a whole reply that ``chunks_of`` cuts into chunks.

    ``fields`` and ``shortcut``: see ``JsonStreamDecoder``. If a whole reply gives a key twice, the last value counts.
    """
    if "event-stream" not in content_type:
        whole = b"".join([data async for data in body])
        reply = read_object(whole)
        if fields is not None and repeats_a_key(whole, reply):
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
    """The JSON value in ``data``, read as leniently as clients read it; None if it is not JSON.

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
    """``value`` as JSON. Lone surrogates are escaped, so that two of them can make one character again."""
    try:
        return orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(value, separators=(",", ":")).encode()


def frame_of(chunk: Mapping[str, Any]) -> bytes:
    """A frame that carries ``chunk``."""
    return b"data: " + dump(chunk) + b"\n\n"


def done_frame(raw: bytes) -> bytes:
    """The last frame, ``raw`` if the upstream sent one, completed by its blank line."""
    if raw.endswith(b"\r\n\r"):
        return raw + b"\n"  # the LF of a last CR LF may not have arrived by then
    return raw if raw.endswith((b"\n\n", b"\r\r", b"\r\n\r\n")) else _DONE


def objects_in(raw: bytes) -> Iterator[dict[str, Any]]:
    """The JSON objects in whole frames."""
    for event in SSEParser().feed(raw):
        if event.data is not None and is_object(event.data):
            yield load(event.data)


def is_object(body: bytes) -> bool:
    """Whether ``body`` is a JSON object."""
    return isinstance(load(body), dict)


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a whole reply. Raises UpstreamConnectError if it is not one."""
    value = load(body)
    if not isinstance(value, dict):
        raise UpstreamConnectError("The upstream's reply is not a JSON object.")
    return value
