"""The event parser: no crash, no lost byte, no unbounded memory, for any bytes and cuts."""

from app.protocols.common.sse import EventTooLargeError, SSEEvent, SSEParser

LIMIT = 4096


def check(data: bytes) -> None:
    """Feed ``data`` in pieces and whole; both must keep every byte and find the same payloads.

    The first byte determines how the rest is cut.
    """
    if not data:
        return
    step, body = 1 + data[0] % 64, data[1:]
    try:
        cut = _parse([body[i : i + step] for i in range(0, len(body), step)])
        whole = _parse([body])
    except EventTooLargeError:
        if len(body) <= LIMIT:
            raise
        return
    for events in (cut, whole):
        if b"".join(event.raw for event in events) != body:
            raise AssertionError("bytes were lost or doubled")
    payloads = [[event.data for event in events if event.data is not None] for events in (cut, whole)]
    if payloads[0] != payloads[1]:
        raise AssertionError("the cuts changed what was found")


def _parse(pieces: list[bytes]) -> list[SSEEvent]:
    parser = SSEParser(max_event_bytes=LIMIT)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return [*events, *parser.close()]
