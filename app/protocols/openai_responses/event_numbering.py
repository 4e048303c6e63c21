"""Numbers outgoing frames and output items without gaps. Bytes are changed only if necessary."""

import re
from collections.abc import Mapping
from typing import Any

from app.protocols.common.sse import SSEParser, load
from app.protocols.openai_responses.decoder import ResponseDecoder
from app.protocols.openai_responses.event_types import ITEM_ADDED, frame_of, index_of

_NUMBER = re.compile(rb'(?<!\\)"sequence_number"\s*:\s*(\d+)')


class EventNumbering:
    """Builds the frames of one reply, with event names if the upstream sends them."""

    def __init__(self, reader: ResponseDecoder) -> None:
        self._reader = reader
        self._next = 0
        self._items: dict[int, int] = {}

    def item(self, index: int) -> int:
        """Return the client's number for the output item with the upstream's number ``index``. The numbers differ if
        earlier items were left out.
        """
        return self._items.get(index, index)

    def passed(self, event: Mapping[str, Any]) -> None:
        """Record that an event was forwarded unchanged. The next event gets the number after it."""
        number = event.get("sequence_number")
        self._next = number + 1 if isinstance(number, int) else self._next + 1
        if event.get("type") == ITEM_ADDED:
            index = index_of(event, "output_index")
            self._items[index] = index

    def renumbered(self, raw: bytes, event: Mapping[str, Any]) -> bytes:
        """Return the frame ``raw`` of ``event`` with the next number. If the event has no number, none is added."""
        placed = self._placed(event)
        if placed is not event:
            return self._emit(placed)
        number, ours = event.get("sequence_number"), self._next
        if not isinstance(number, int):
            return raw
        self._next += 1
        if number == ours:
            return raw
        places = list(_NUMBER.finditer(raw))
        if len(places) != 1:
            return frame_of({**event, "sequence_number": ours}, named=self._reader.named)
        start, end = places[0].span(1)
        return b"%b%d%b" % (raw[:start], ours, raw[end:])

    def emit(self, event: Mapping[str, Any]) -> bytes:
        """Build a frame for a new event."""
        return self._emit(self._placed(event))

    def _emit(self, event: Mapping[str, Any]) -> bytes:
        numbered = {**event, "sequence_number": self._next}
        self._next += 1
        return frame_of(numbered, named=self._reader.named)

    def _placed(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``event`` with the client's number for its item."""
        if "output_index" not in event:
            return event
        index = index_of(event, "output_index")
        if event.get("type") == ITEM_ADDED:
            self._items.setdefault(index, len(self._items))
        number = self.item(index)
        return event if number == index else {**event, "output_index": number}


def data_in(raw: bytes) -> bytes | None:
    """Return the data of a frame, or None if it has none, for example because it is a comment."""
    parser = SSEParser()
    return next((event.data for event in (*parser.feed(raw), *parser.close()) if event.data is not None), None)


def event_in(raw: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a frame, or None if it has none."""
    data = data_in(raw)
    decoded = load(data) if data is not None else None
    return decoded if isinstance(decoded, dict) else None
