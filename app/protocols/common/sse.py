"""An incremental parser of server-sent events that keeps every byte.

The grammar is WHATWG HTML, section 9.2. Each event has its raw bytes beside the parsed ``data``, so that unchanged
events are forwarded untouched; the raw bytes of all events, joined, are the input.
"""

import re
from dataclasses import dataclass

# A blank line ends an event. Atomic groups: CR LF is one line end, never a CR line followed by an LF line.
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLargeError(ValueError):
    """An event exceeds the limit; none of it was kept."""


@dataclass(frozen=True, slots=True)
class SSEEvent:
    """One event. ``data`` is None if there is no ``data:`` field (a comment, or only control fields)."""

    raw: bytes
    data: bytes | None
    event: str | None = None


class SSEParser:
    """Feed it bytes, cut anywhere; it returns the complete events.

    ``max_event_bytes`` limits how much of an unfinished event is kept.
    """

    def __init__(self, *, max_event_bytes: int = 16 * 1024 * 1024) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._first = True
        self._max_event_bytes = max_event_bytes

    def feed(self, data: bytes) -> list[SSEEvent]:
        """Take bytes; return the events completed by them, in order. Raises EventTooLargeError."""
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
        # The longest unfinished event end is three bytes: CR LF CR.
        self._scanned = max(0, len(buffer) - 3)
        if len(buffer) > self._max_event_bytes:
            raise EventTooLargeError(f"a server-sent event exceeds {self._max_event_bytes} bytes")
        return events

    def close(self) -> list[SSEEvent]:
        """The input has ended: return the last event even though its blank line is missing."""
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
