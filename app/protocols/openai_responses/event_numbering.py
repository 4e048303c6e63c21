"""Frames as they leave: numbered without a gap, with no byte changed unnecessarily."""

import re
from collections.abc import Mapping
from typing import Any

from app.protocols.common.sse import SSEParser
from app.protocols.common.sse_json import load
from app.protocols.openai_responses.decoder import ResponseDecoder
from app.protocols.openai_responses.event_types import frame_of

_NUMBER = re.compile(rb'(?<!\\)"sequence_number"\s*:\s*(\d+)')


class EventNumbering:
    """Makes the frames of one reply, with the events' names if the upstream sends them."""

    def __init__(self, reader: ResponseDecoder) -> None:
        self._reader = reader
        self._next = 0

    def passed(self, event: Mapping[str, Any]) -> None:
        """An event has passed unchanged; the next one gets the number after it."""
        number = event.get("sequence_number")
        self._next = number + 1 if isinstance(number, int) else self._next + 1

    def renumbered(self, raw: bytes, event: Mapping[str, Any]) -> bytes:
        """The frame ``raw`` of ``event``, with the next number; an event without a number stays so."""
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
        """A frame of our own."""
        numbered = {**event, "sequence_number": self._next}
        self._next += 1
        return frame_of(numbered, named=self._reader.named)


def data_in(raw: bytes) -> bytes | None:
    """The data of a frame; None if it has none, like a comment."""
    parser = SSEParser()
    return next((event.data for event in (*parser.feed(raw), *parser.close()) if event.data is not None), None)


def event_in(raw: bytes) -> dict[str, Any] | None:
    """The JSON object of a frame; None if it holds none."""
    data = data_in(raw)
    decoded = load(data) if data is not None else None
    return decoded if isinstance(decoded, dict) else None
