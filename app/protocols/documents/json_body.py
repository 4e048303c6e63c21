"""Parses request bodies strictly, so that every JSON parser reads them the same way, and validates individual fields.
Each function that reads a field returns its value, or raises InvalidRequestError with its path."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any, NoReturn

import orjson

from app.errors import InvalidRequestError

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_EPOCH_FROM, _EPOCH_TO = 100_000_000, 10_000_000_000
"""The range of numbers that are read as epoch seconds, from 1973 to 2286. Smaller numbers may be days or years, and
larger numbers are milliseconds."""


def refuse(path: str, expected: str, value: Any) -> NoReturn:
    """Raise InvalidRequestError. The message says that the value at ``path`` should be ``expected``."""
    shown = f"{printable(repr(value)):.60}" if isinstance(value, str | float | bool) else _shown(value)
    raise InvalidRequestError(f"{path}: expected {expected}, got {shown}.", param=path)


def join_path(root: str, parts: Sequence[Any]) -> str:
    """Return ``root`` followed by names and positions, for example ``documents[2].text``."""
    path = root
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return printable(path)


def printable(text: str) -> str:
    """Return ``text`` with lone surrogates, which UTF-8 cannot encode, replaced by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def kind(value: Any) -> str:
    """Describe the type of a JSON value in words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "nothing"}
    return names.get(type(value), "a number")


def _shown(value: Any) -> str:
    # Python refuses to convert integers with thousands of digits to strings.
    return str(value) if isinstance(value, int) and value.bit_length() < 64 else kind(value)


def inside(body: Mapping[str, Any], outer: str, name: str) -> Any:
    """Return the field ``name`` of the object in the field ``outer``, or None if the field or the object is missing."""
    value = body.get(outer)
    return value.get(name) if isinstance(value, dict) else None


def read_string(value: Any, path: str) -> str | None:
    """Return a string, or None if it is empty or missing."""
    if value is not None and not isinstance(value, str):
        refuse(path, "a string", value)
    return value or None


def read_flag(value: Any, path: str) -> bool:
    """Return a boolean, or False if it is missing."""
    if value is not None and not isinstance(value, bool):
        refuse(path, "true or false", value)
    return bool(value)


def read_number(value: Any, path: str, expected: str) -> float:
    """Return a finite number. ``expected`` describes the value in the error message."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(path, expected, value)
    try:
        number = float(value)
    except OverflowError:
        refuse(path, expected, value)
    if not math.isfinite(number):
        refuse(path, expected, value)
    return number


SHARE = "a number from 0 to 1"


def read_stamp(value: Any, path: str) -> datetime:
    """Read a point in time, given as an RFC 3339 date or date-time, or as epoch seconds. A time without an offset is in
    UTC."""
    expected = "an RFC 3339 date or date-time, or epoch seconds"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not _EPOCH_FROM <= value < _EPOCH_TO:
            refuse(path, expected, value)
        return datetime.fromtimestamp(value, UTC)
    if not isinstance(value, str):
        refuse(path, expected, value)
    try:
        if _DATE.fullmatch(value):
            return datetime.combine(date.fromisoformat(value), time(), UTC)
        if not _DATE.match(value):
            refuse(path, expected, value)
        stamp = datetime.fromisoformat(value.upper())
        return stamp.astimezone(UTC) if stamp.tzinfo is not None else stamp.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        refuse(path, expected, value)


_MAX_DEPTH = 200
"""Maximum nesting depth of a body. Encoders fail at about 250 levels, and real requests need less than half as many."""

_EXACT = 2.0**63
"""At or above this value, a float may be an integer that orjson has rounded."""

_MANY_FIELDS = 64
_ESCAPED_NAME = re.compile(rb'\\u[0-9a-fA-F]{4}[^"\\]*"\s*:')

# A path as a linked list: the last key, and the path before it. Extending it takes the same time at any depth.
_Path = tuple[Any, ...]


def parse_json(raw: bytes) -> dict[str, Any]:
    """Decode a request body. Raises InvalidRequestError if it is not a JSON object.

    NaN, infinities, lone surrogates and duplicate fields of the object are also refused. If a field had two values, the
    gateway and the upstream might read different ones.
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
    """Parse a body that orjson rejects, or in which it rounds a number. Integers beyond 64 bits stay exact. Raises
    InvalidRequestError if the body is not valid JSON or UTF-8."""
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
    """Yield the names of all fields and all values except objects and lists, with their paths."""
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
    """Return whether a number may have been rounded. Raises InvalidRequestError if ``body`` is nested too deeply."""
    rounded = False
    level: list[Any] = [body]
    for _ in range(_MAX_DEPTH):
        next_level = []
        for item in level:
            for value in item.values() if type(item) is dict else item:
                kind = type(value)
                if kind is dict or kind is list:
                    next_level.append(value)
                elif kind is float and abs(value) >= _EXACT:
                    rounded = True
        if not next_level:
            return rounded
        level = next_level
    raise InvalidRequestError(f"The request body is nested more than {_MAX_DEPTH} levels deep.", param="body")


def _refuse_repeated(raw: bytes, body: dict[str, Any]) -> None:
    # If every field name occurs only once in the text and none contains an escape, there are no duplicate fields.
    few = len(body) <= _MANY_FIELDS and all(raw.count(b'"%s"' % name.encode()) < 2 for name in body)
    if few and not _ESCAPED_NAME.search(raw):
        return
    fields: list[tuple[str, Any]] = []

    def keep(pairs: list[tuple[str, Any]]) -> None:
        nonlocal fields
        fields = pairs  # the hook is called last for the outermost object

    json.loads(raw, object_pairs_hook=keep)
    seen: set[str] = set()
    for name, _ in fields:
        if name in seen:
            raise InvalidRequestError(f"{name}: duplicate field.", param=name)
        seen.add(name)
