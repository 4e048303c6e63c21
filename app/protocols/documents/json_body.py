"""Request bodies: JSON that every reader understands the same way, or a clear error."""

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from app.errors import InvalidRequestError
from app.protocols.documents.fields import join_path, kind, refuse

_MAX_DEPTH = 200
"""Encoders give up at some 250 levels, and no request needs half as many."""

_EXACT = 2.0**63
"""From here on, a float may be an integer that orjson has rounded."""

_MANY_FIELDS = 64
_ESCAPED_NAME = re.compile(rb'\\u[0-9a-fA-F]{4}[^"\\]*"\s*:')

# A path from its end: the last key, and the path before it, so that it costs the same at any depth.
_Path = tuple[Any, ...]


def parse_json(raw: bytes) -> dict[str, Any]:
    """Decode a request body. Raises InvalidRequestError if it is not a JSON object.

    Also refused: NaN and infinities, lone surrogates, and duplicate fields of the object, since the upstream may use
    the other one.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        body = _parse_slowly(raw, str(error))
    if isinstance(body, dict) and _look_through(body):
        body = _parse_slowly(raw, "a number is too long")
    if not isinstance(body, dict):
        raise InvalidRequestError(f"The request body must be a JSON object, not {kind(body)}.")
    _refuse_repeated(raw, body)
    return body


def _parse_slowly(raw: bytes, error: str) -> Any:
    """Bodies that orjson refuses or rounds: integers beyond 64 bits stay exact; invalid JSON or text is reported."""
    try:
        body = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        raise InvalidRequestError(f"The request body is not valid JSON: {error}.") from None
    for path, value in _values(body):
        if isinstance(value, float) and not math.isfinite(value):
            refuse(_written(path), "a finite number", value)
        elif isinstance(value, str) and _is_broken(value):
            refuse(_written(path), "valid Unicode", value)
    return body


def _is_broken(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def _values(value: Any) -> Iterator[tuple[_Path, Any]]:
    """All values other than containers, in order, with their paths; names of fields too."""
    stack: list[tuple[_Path, Any]] = [((), value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, dict):
            yield from ((path, name) for name in item)
            stack.extend(((name, path), inner) for name, inner in reversed(item.items()))
        elif isinstance(item, list):
            stack.extend(((index, path), item[index]) for index in reversed(range(len(item))))
        else:
            yield path, item


def _written(path: _Path) -> str:
    parts: list[Any] = []
    while path:
        part, path = path
        parts.append(part)
    return join_path("", parts[::-1]) or "body"


def _look_through(body: dict[str, Any]) -> bool:
    """Whether a number may have been rounded. Raises InvalidRequestError if ``body`` is nested too deeply."""
    rounded = False
    level: list[Any] = [body]
    for _ in range(_MAX_DEPTH):
        values = [inner for item in level for inner in _children(item)]
        rounded = rounded or any(isinstance(value, float) and abs(value) >= _EXACT for value in values)
        level = [value for value in values if isinstance(value, dict | list)]
        if not level:
            return rounded
    raise InvalidRequestError(f"The request body is nested more than {_MAX_DEPTH} levels deep.", param="body")


def _children(item: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return item.values() if isinstance(item, dict) else item


def _refuse_repeated(raw: bytes, body: dict[str, Any]) -> None:
    # A name that occurs once is given once, unless an escape hides it.
    few = len(body) <= _MANY_FIELDS and all(raw.count(b'"%s"' % name.encode()) < 2 for name in body)
    if few and not _ESCAPED_NAME.search(raw):
        return
    fields: list[tuple[str, Any]] = []

    def keep(pairs: list[tuple[str, Any]]) -> None:
        nonlocal fields
        fields = pairs  # the outermost object ends last

    json.loads(raw, object_pairs_hook=keep)
    seen: set[str] = set()
    for name, _ in fields:
        if name in seen:
            raise InvalidRequestError(f"{name}: the field is given twice.", param=name)
        seen.add(name)
