"""Normalizes the events of replies to which no policy applies. No content is left out.

Missing types are added: a part without a type becomes text, and an item without a type becomes a message. Values of
known fields are removed if they have the wrong type. Replies under a policy are rebuilt from tables instead (see
``fields``).
"""

import re
from collections.abc import Mapping
from typing import Any

from app.protocols.common.known_fields import wordless
from app.protocols.openai_responses.event_types import TEXT_DELTA, is_text, object_of, objects_in
from app.protocols.openai_responses.field_names import (
    ANNOTATION_FIELDS,
    ERROR_FIELDS,
    EVENT_FIELDS,
    ITEMS,
    MESSAGE_FIELDS,
    NUMBERS,
    OTHER_EVENTS,
    OTHER_PARTS,
    RESPONSE_FIELDS,
    TEXT_FIELDS,
    WORDS,
)

_CALL = re.compile(r"[a-z_]{1,48}_call(_output)?", re.ASCII)
_SPACE = re.compile(r"\s")
_PLAIN = re.compile(rb"(?:(?:data:[^\r\n]*|event: ?[\w.-]{1,80}|id: ?[\w.:-]{0,80}|retry: ?\d{1,9})?(?:\r\n|\n|\r))*+")

_SETTINGS = frozenset({"text", "usage", "error", "incomplete_details"})
"""The fields of a response whose values are objects."""


class Shapes:
    """Normalizes events. ``unknown`` becomes true when an event has text in an unknown field or in an object of an
    unknown type."""

    def __init__(self) -> None:
        self.unknown = False

    def event(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the normalized event, or None if it has no type. If ``event`` is already normalized, the result equals
        it."""
        kind = event.get("type")
        if not isinstance(kind, str):
            self.unknown = True
            return None
        fields = EVENT_FIELDS.get(kind)
        if fields is None:
            if kind not in OTHER_EVENTS:
                self._note({name: value for name, value in event.items() if name != "type"})
            return dict(event)
        found = self._known(event, fields)
        if "response" in fields:
            found["response"] = self.response(object_of(event.get("response")))
        for name, inner in (("item", self._item), ("part", self._part), ("annotation", self._annotation)):
            if name in fields:
                found[name] = inner(object_of(event.get(name)))
        return _worded(found, "text")

    def response(self, response: Mapping[str, Any]) -> dict[str, Any]:
        """Normalize a response object."""
        found = self._known(response, RESPONSE_FIELDS)
        for name in _SETTINGS & found.keys():
            if found[name] is not None and not isinstance(found[name], dict):
                del found[name]
        for name, fields in (("error", ERROR_FIELDS), ("incomplete_details", frozenset({"reason"}))):
            if isinstance(found.get(name), dict):
                found[name] = self._known(found[name], fields)
        if not isinstance(found.get("output_text", ""), str):
            del found["output_text"]
        if "output" in found:
            found["output"] = [self._item(item) for _, item in objects_in(found["output"])]
        return found

    def _item(self, item: Mapping[str, Any]) -> dict[str, Any]:
        kind = item.get("type")
        if isinstance(kind, str) and kind != "message":
            if kind not in ITEMS and not _CALL.fullmatch(kind):
                self._note(item)
            return dict(item)
        found = {**self._known(item, MESSAGE_FIELDS), "type": "message"}
        if "content" in found:
            found["content"] = [self._part(part) for _, part in objects_in(found["content"])]
        return found

    def _part(self, part: Mapping[str, Any]) -> dict[str, Any]:
        kind = part.get("type")
        other = OTHER_PARTS.get(kind) if isinstance(kind, str) else None
        if other is not None:
            return self._known(part, other)
        if not is_text(part) and (isinstance(kind, str) or not isinstance(part.get("text"), str)):
            self._note(part)
            return dict(part)
        found = _worded(self._known(part, TEXT_FIELDS), "text")
        if not is_text(part):
            found["type"] = "output_text"
        if found.get("annotations") is not None:
            found["annotations"] = [self._annotation(note) for _, note in objects_in(found["annotations"])]
        return found

    def _annotation(self, annotation: Mapping[str, Any]) -> dict[str, Any]:
        return self._known(annotation, ANNOTATION_FIELDS)

    def _known(self, value: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
        self._note({name: inner for name, inner in value.items() if name not in names})
        return {name: inner for name, inner in value.items() if name not in names or _fits(name, inner)}

    def _note(self, unread: Mapping[str, Any]) -> None:
        self.unknown = self.unknown or not wordless(unread)


def passes(raw: bytes, event: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Return whether the frame ``raw`` of ``event`` can be forwarded without being rebuilt from ``known``. Text deltas
    can be forwarded. A frame of any other event that can contain text can't, because a duplicate field could hide a
    value."""
    kind = known["type"]
    return kind == TEXT_DELTA or (kind not in EVENT_FIELDS and known == event and _PLAIN.fullmatch(raw) is not None)


def _fits(name: str, value: Any) -> bool:
    """Return whether the value of a known field has the expected type."""
    if name in WORDS and isinstance(value, str):
        return not _SPACE.search(value)
    return (name not in NUMBERS and name not in WORDS) or wordless(value)


def _worded(found: dict[str, Any], name: str) -> dict[str, Any]:
    """Return ``found``, with the field ``name`` set to an empty string if it is not a string."""
    return found if isinstance(found.get(name, ""), str) else {**found, name: ""}
