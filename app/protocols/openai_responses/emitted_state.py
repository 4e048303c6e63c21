"""Tracks the parts of a response that were sent to the client, and adjusts later events that repeat the text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.protocols.openai_responses.event_types import (
    ANNOTATION,
    ITEM_ADDED,
    ITEM_DONE,
    LIFECYCLE,
    PART_ADDED,
    PART_DONE,
    TEXT_DELTA,
    TEXT_DONE,
    Place,
    TextPart,
    index_of,
    is_text,
    object_of,
    objects_in,
    place_of,
    text_of,
)
from app.protocols.openai_responses.text_parts import TextParts


@dataclass(slots=True, kw_only=True)
class EmittedText:
    """The released text of a text part. ``waiting`` contains upstream annotations. Which of them are sent is decided at
    the end of the part."""

    texts: list[str] = field(default_factory=list)
    tokens: list[Mapping[str, Any]] = field(default_factory=list)
    annotations: list[Mapping[str, Any]] = field(default_factory=list)
    waiting: list[Mapping[str, Any]] = field(default_factory=list)
    ours: Sequence[Mapping[str, Any]] = ()

    @property
    def text(self) -> str:
        return "".join(self.texts)


class EmittedState:
    """Tracks one reply. Call ``see`` for each upstream event that is released."""

    def __init__(self, texts: TextParts) -> None:
        self.response: dict[str, Any] = {}
        self.items: dict[int, dict[str, Any]] = {}
        self._contents: dict[int, dict[int, dict[str, Any]]] = {}
        self._done: set[tuple[int, ...]] = set()
        self._sent: dict[int, EmittedText] = {}
        self._texts = texts

    def sent(self, choice: int) -> EmittedText:
        return self._sent.setdefault(choice, EmittedText())

    def announced(self, part: TextPart) -> tuple[bool, bool]:
        """Return two booleans: whether the client has received the item of ``part``, and whether it has received the
        part itself."""
        output_index, content_index = part.place
        return output_index in self.items, content_index in self._contents.get(output_index, {})

    def see(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return the event that the client may see. The event is changed only if it repeats text that was changed for
        the client."""
        kind = event.get("type")
        if kind in LIFECYCLE:
            self.response = object_of(event.get("response"))
        elif kind == ITEM_ADDED:
            self._see_item(event)
        elif kind == ITEM_DONE:
            index = index_of(event, "output_index")
            item = self.item(index, object_of(event.get("item")))
            self.items[index] = item
            self._done.add((index,))
            return _with(event, item=item)
        elif kind in (PART_ADDED, PART_DONE):
            return self._see_part(event)
        elif kind == TEXT_DONE:
            return self._see_text(event)
        elif kind in (TEXT_DELTA, ANNOTATION):
            self._see_live(event)
        return event

    def part(self, part: TextPart, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content part ``given`` with the delivered text."""
        sent = self.sent(part.choice)
        text, original = sent.text, text_of(given)
        changed = dict(given)
        annotations: list[Mapping[str, Any]] = [found for _, found in objects_in(given.get("annotations"))]
        if text != original:
            changed["text"] = text
            if given.get("logprobs"):
                changed["logprobs"] = list(sent.tokens)
            annotations = self.valid(part, annotations)
        if sent.ours or len(annotations) != len(given.get("annotations") or ()):
            changed["annotations"] = [*annotations, *sent.ours]
        return changed

    def item(self, index: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the output item ``given`` with the delivered text."""
        if given.get("type") != "message" or not isinstance(given.get("content"), list):
            return dict(given)
        return {**given, "content": [self._content((index, i), given, part) for i, part in enumerate(given["content"])]}

    def valid(self, part: TextPart, annotations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the upstream's annotations whose positions are still correct, that is, those before the first change
        to the text."""
        kept = _shared(part.text, self.sent(part.choice).text)
        return [annotation for annotation in annotations if _reach(annotation) <= kept]

    def standing(self) -> list[dict[str, Any]]:
        """Return the output with the content that the client has seen."""
        return [self.standing_item(index) for index in sorted(self.items)]

    def standing_part(self, part: TextPart) -> dict[str, Any]:
        """Return a text part with the text that the client has seen."""
        sent = self.sent(part.choice)
        base = {"type": "output_text", **self._contents.get(part.place[0], {}).get(part.place[1], {})}
        if base.get("logprobs") is not None:
            base["logprobs"] = list(sent.tokens)
        return {**base, "text": sent.text, "annotations": [*sent.annotations]}

    def standing_item(self, index: int) -> dict[str, Any]:
        """Return an output item with the content that the client has seen. If it is an unfinished message, its status
        becomes ``incomplete``."""
        item, contents = self.items[index], self._contents.get(index, {})
        if item.get("type") != "message" or (index,) in self._done:
            return dict(item)
        parts = {part.place: part for part in self._texts.parts if part.place not in self._done}
        content = [
            self.standing_part(parts[index, i]) if (index, i) in parts else part for i, part in sorted(contents.items())
        ]
        return {**item, "status": "incomplete", "content": content}

    def _content(self, place: tuple[int, int], item: Mapping[str, Any], given: Any) -> Any:
        if not isinstance(given, dict) or not is_text(given):
            return given
        part = self._texts.find(place, item.get("id"))
        return self.part(part, given) if part is not None else {**given, "text": "", "annotations": []}

    def _see_item(self, event: dict[str, Any]) -> None:
        index, item = index_of(event, "output_index"), object_of(event.get("item"))
        self.items[index] = item
        if item.get("type") == "message":
            for place, part in objects_in(item.get("content")):
                self._open((index, place), item.get("id"), part)

    def _open(self, place: Place, item_id: Any, given: dict[str, Any]) -> None:
        """Record a content part that is sent to the client, and the text in it that is shown immediately (in ``live``
        mode)."""
        self._contents.setdefault(place[0], {})[place[1]] = given
        found = self._texts.find(place, item_id) if is_text(given) else None
        if found is not None:
            sent = self.sent(found.choice)
            sent.texts.append(text_of(given).removeprefix(sent.text))

    def _see_part(self, event: dict[str, Any]) -> dict[str, Any]:
        output_index, content_index = place_of(event)
        given = object_of(event.get("part"))
        found = self._texts.about(event)
        if event["type"] == PART_ADDED:
            self._open((output_index, content_index), event.get("item_id"), given)
        else:
            self._done.add((output_index, content_index))
            given = self.part(found, given) if is_text(given) and found is not None else given
            self._contents.setdefault(output_index, {})[content_index] = given
        return _with(event, part=given)

    def _see_text(self, event: dict[str, Any]) -> dict[str, Any]:
        found = self._texts.about(event)
        return self.text_done(found, event) if found is not None else event

    def text_done(self, part: TextPart, event: dict[str, Any]) -> dict[str, Any]:
        """Return the event that ends a text. It contains all text that was delivered."""
        sent = self.sent(part.choice)
        if sent.text == text_of(event):
            return event
        changed = {**event, "text": sent.text}
        if event.get("logprobs"):
            changed["logprobs"] = list(sent.tokens)
        return changed

    def _see_live(self, event: dict[str, Any]) -> None:
        part = self._texts.about(event)
        if part is None:
            return
        if event["type"] == ANNOTATION:
            self.sent(part.choice).annotations.append(object_of(event.get("annotation")))
        elif isinstance(event.get("delta"), str):
            self.sent(part.choice).texts.append(event["delta"])
            self.sent(part.choice).tokens.extend(token for _, token in objects_in(event.get("logprobs")))


def _with(event: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return ``event`` with the given ``fields``. If it already has them, return ``event`` itself."""
    return event if all(event.get(name) == value for name, value in fields.items()) else {**event, **fields}


def _shared(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _reach(annotation: Mapping[str, Any]) -> int:
    """Return the end position of the text that an annotation refers to."""
    places = [annotation.get(name) for name in ("end_index", "start_index", "index")]
    return max((place for place in places if isinstance(place, int)), default=0)
