"""Helpers for Responses API events: their names and frames, the position of their text in the output, and the length of
their other content."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.protocols.common import sse as framing
from app.protocols.common.known_fields import text_length

ITEM_ADDED = "response.output_item.added"
ITEM_DONE = "response.output_item.done"
PART_ADDED = "response.content_part.added"
PART_DONE = "response.content_part.done"
TEXT_DELTA = "response.output_text.delta"
TEXT_DONE = "response.output_text.done"
ANNOTATION = "response.output_text.annotation.added"
ERROR = "error"
FAILED = "response.failed"
INCOMPLETE = "response.incomplete"
COMPLETED = "response.completed"

LIFECYCLE = frozenset({"response.created", "response.queued", "response.in_progress"})
TERMINAL = frozenset({COMPLETED, INCOMPLETE, FAILED})

_NAME = re.compile(r"[\w.-]+", re.ASCII)

Place = tuple[int, int]
"""The position of a content part: the index of its item in the output, and the index of the part in the item's
content."""


@dataclass(slots=True, kw_only=True)
class TextPart:
    """A text part of the output, as the upstream sends it. ``choice`` is its number in the pipeline."""

    choice: int
    place: Place
    item_id: str
    received: list[str] = field(default_factory=list)
    closed: bool = False
    annotations: list[Mapping[str, Any]] = field(default_factory=list)
    """The part's citations reported so far, without duplicates."""

    @property
    def text(self) -> str:
        return "".join(self.received)

    @property
    def position(self) -> dict[str, Any]:
        """The fields with which an event identifies its part."""
        output_index, content_index = self.place
        return {"item_id": self.item_id, "output_index": output_index, "content_index": content_index}


def frame_of(event: Mapping[str, Any], *, named: bool = True) -> bytes:
    """Build a frame with ``event``. With ``named``, the frame includes the event's name, as in OpenAI's streams."""
    name = event.get("type")
    head = f"event: {name}\n".encode() if named and isinstance(name, str) and _NAME.fullmatch(name) else b""
    return head + framing.frame_of(event)


def index_of(event: Mapping[str, Any], name: str) -> int:
    value = event.get(name)
    return value if isinstance(value, int) and value >= 0 else 0


def place_of(event: Mapping[str, Any]) -> Place:
    """Return the position that an event refers to."""
    return index_of(event, "output_index"), index_of(event, "content_index")


def object_of(value: Any) -> dict[str, Any]:
    """Return ``value`` if it is an object, otherwise an empty object."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects in a list, each with its position."""
    items = enumerate(value) if isinstance(value, list) else ()
    return [(index, item) for index, item in items if isinstance(item, dict)]


def is_text(part: Mapping[str, Any]) -> bool:
    """Return whether a content part is reply text."""
    return part.get("type") in ("output_text", "text")


def begun(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``response`` without its output, as at the start of a stream."""
    return {name: value for name, value in {**response, "output": []}.items() if name != "output_text"}


def emptied(part: Mapping[str, Any]) -> dict[str, Any]:
    """Build a text part before any text has arrived."""
    return {**part, "text": "", **({"logprobs": []} if part.get("logprobs") else {})}


def text_of(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else ""


_NOT_GENERATED = frozenset({"output", "outputs", "results", "tools"})
"""The results of tools, which an upstream adds to the items of their calls."""


class OtherContent:
    """Measures the generated content of a response that isn't reply text. Complete items repeat the content of their
    deltas, which is counted only once. Without ``refusals``, refusals count as reply text."""

    def __init__(self, *, refusals: bool) -> None:
        self._refusals = refusals
        self._counted: Counter[int] = Counter()

    def chars(self, event: Mapping[str, Any]) -> int:
        """Return the number of characters of such content that an event adds."""
        kind, index = str(event.get("type")), index_of(event, "output_index")
        if kind == ITEM_DONE:
            length = text_length(self._generated(object_of(event.get("item")))) - self._counted[index]
        elif kind.endswith(".delta") and "audio.delta" not in kind and kind != TEXT_DELTA:
            length = text_length(event.get("delta")) if self._refusals or "refusal" not in kind else 0
        else:
            return 0
        self._counted[index] += max(0, length)
        return max(0, length)

    def _generated(self, item: Mapping[str, Any]) -> Any:
        if item.get("type", "message") != "message":
            return {name: value for name, value in item.items() if name not in _NOT_GENERATED}
        parts = [part for _, part in objects_in(item.get("content")) if not is_text(part)]
        return [part for part in parts if self._refusals or part.get("type") != "refusal"]
