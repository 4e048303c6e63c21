"""Readers of single fields, shared by every API: each returns the value or raises InvalidRequestError with its path."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any, NoReturn

from app.errors import InvalidRequestError

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_EPOCH_FROM, _EPOCH_TO = 100_000_000, 10_000_000_000
"""Seconds from 1973 to 2286: smaller numbers may be days or years, larger ones are milliseconds."""


def refuse(path: str, expected: str, value: Any) -> NoReturn:
    """Raise InvalidRequestError: ``path`` should have been ``expected``."""
    shown = f"{printable(repr(value)):.60}" if isinstance(value, str | float | bool) else _shown(value)
    raise InvalidRequestError(f"{path}: expected {expected}, got {shown}.", param=path)


def join_path(root: str, parts: Sequence[Any]) -> str:
    """``root`` followed by names and positions, like ``documents[2].text``."""
    path = root
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return printable(path)


def printable(text: str) -> str:
    """``text`` with question marks for lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def kind(value: Any) -> str:
    """The type of a JSON value, in words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "nothing"}
    return names.get(type(value), "a number")


def _shown(value: Any) -> str:
    # Python refuses to print integers of thousands of digits.
    return str(value) if isinstance(value, int) and value.bit_length() < 64 else kind(value)


def inside(body: Mapping[str, Any], outer: str, name: str) -> Any:
    """A field of an object, which may be missing; other values have none."""
    value = body.get(outer)
    return value.get(name) if isinstance(value, dict) else None


def read_string(value: Any, path: str) -> str | None:
    """A string; None if it is empty or missing."""
    if value is not None and not isinstance(value, str):
        refuse(path, "a string", value)
    return value or None


def read_flag(value: Any, path: str) -> bool:
    """A boolean; false if it is missing."""
    if value is not None and not isinstance(value, bool):
        refuse(path, "true or false", value)
    return bool(value)


def read_number(value: Any, path: str, expected: str) -> float:
    """A finite number. ``expected`` describes it in the error."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(path, expected, value)
    try:
        number = float(value)
    except OverflowError:
        refuse(path, expected, value)
    if not math.isfinite(number):
        refuse(path, expected, value)
    return number


def read_share(value: Any, path: str) -> float:
    """A number from 0 to 1."""
    number = read_number(value, path, "a number from 0 to 1")
    if not 0 <= number <= 1:
        refuse(path, "a number from 0 to 1", value)
    return number


def read_stamp(value: Any, path: str) -> datetime:
    """A point in time: an RFC 3339 date or date-time (without an offset it is UTC), or epoch seconds."""
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
