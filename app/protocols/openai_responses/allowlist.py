"""The fields of an event that may be released: none that could hold text of the reply where no text is read.

Text is moved to where it is read, if there is a place for it: a part without a type is text, an item without one is a
message. Under names unknown to the API, only values without words are kept.
"""

import re
from collections.abc import Mapping
from typing import Any

from app.protocols.common.known_fields import wordless
from app.protocols.common.logprobs import spell
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

_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)
_CALL = re.compile(r"[a-z_]{1,48}_call(_output)?", re.ASCII)
_SPACE = re.compile(r"\s")
_PLAIN = re.compile(rb"(?:(?:data:[^\r\n]*|event: ?[\w.-]{1,80}|id: ?[\w.:-]{0,80}|retry: ?\d{1,9})?(?:\r\n|\n|\r))*+")

_SETTINGS = frozenset({"text", "usage", "error", "incomplete_details"})
"""Fields of a response that are objects; no other type is known for them."""


def clean(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """The event as it may be released, equal to ``event`` if nothing has to be removed; None if it may not be
    released."""
    kind = event.get("type")
    if not isinstance(kind, str):
        return None
    if kind in OTHER_EVENTS:
        return dict(event)
    fields = EVENT_FIELDS.get(kind)
    if fields is None:
        rest = {name: value for name, value in event.items() if name != "type"}
        return dict(event) if _NAME.fullmatch(kind) and wordless(rest) else None
    found = _only(event, fields)
    if "response" in fields:
        found["response"] = clean_response(object_of(event.get("response")))
    for name, inner in (("item", _item), ("part", _part), ("annotation", _annotation)):
        if name in fields:
            cleaned = inner(object_of(event.get(name)))
            if cleaned is None:
                return None
            found[name] = cleaned
    return _spelled(_worded(found, "text"), "text" if "text" in fields else "delta")


def passes(raw: bytes, event: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether the frame ``raw`` of ``event`` has nothing but ``known``, which may be released of it.

    Never true for a frame that can hold text: a duplicate name carries a value that nobody read.
    """
    kind = known["type"]
    return kind == TEXT_DELTA or (kind not in EVENT_FIELDS and known == event and _PLAIN.fullmatch(raw) is not None)


def clean_response(response: Mapping[str, Any]) -> dict[str, Any]:
    """A response object as it may be released, apart from the text that is read in it."""
    found = _only(response, RESPONSE_FIELDS)
    for name in _SETTINGS & found.keys():
        if found[name] is not None and not isinstance(found[name], dict):
            del found[name]
    for name, fields in (("error", ERROR_FIELDS), ("incomplete_details", frozenset({"reason"}))):
        if isinstance(found.get(name), dict):
            found[name] = _only(found[name], fields)
    if not isinstance(found.get("output_text", ""), str):
        del found["output_text"]
    if "output" in found:
        found["output"] = _list(found["output"], _item)
    return found


def _item(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """An output item. One that has content and is of no other known type is a message."""
    kind = item.get("type")
    if isinstance(kind, str) and (kind in ITEMS or (_CALL.fullmatch(kind) and "content" not in item)):
        return dict(item)
    if kind != "message" and "content" not in item:
        return None
    found = {**_only(item, MESSAGE_FIELDS), "type": "message"}
    if "content" in found:
        found["content"] = _list(found["content"], _part)
    return found


def _part(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """A content part of a message. One that has text and is of no other known type is text."""
    kind = part.get("type")
    other = OTHER_PARTS.get(kind) if isinstance(kind, str) else None
    if other is not None:
        return _only(part, other)
    if not is_text(part) and not isinstance(part.get("text"), str):
        return None
    found = _worded(_only(part, TEXT_FIELDS), "text")
    if not is_text(part):
        found["type"] = "output_text"
    if found.get("annotations") is not None:
        found["annotations"] = _list(found["annotations"], _annotation)
    return _spelled(found, "text")


def _annotation(annotation: Mapping[str, Any]) -> dict[str, Any]:
    return _only(annotation, ANNOTATION_FIELDS)


def _list(value: Any, inner: Any) -> list[dict[str, Any]]:
    cleaned = (inner(entry) for _, entry in objects_in(value))
    return [entry for entry in cleaned if entry is not None]


def _only(value: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: inner for name, inner in value.items() if _fits(name, inner, names)}


def _fits(name: str, value: Any, names: frozenset[str]) -> bool:
    if name not in names:
        return wordless({name: value})
    if name in WORDS and isinstance(value, str):
        return not _SPACE.search(value)
    return (name not in NUMBERS and name not in WORDS) or wordless(value)


def _worded(found: dict[str, Any], name: str) -> dict[str, Any]:
    """``found`` without a text that is not a string."""
    return found if isinstance(found.get(name, ""), str) else {**found, name: ""}


def _spelled(found: dict[str, Any], name: str) -> dict[str, Any]:
    """``found`` without tokens that do not spell its text."""
    if not found.get("logprobs"):
        return found
    tokens = [token for _, token in objects_in(found["logprobs"])]
    return found if spell(tokens, str(found.get(name) or "")) else {**found, "logprobs": []}
