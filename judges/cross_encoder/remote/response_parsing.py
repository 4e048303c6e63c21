"""Parses the responses of judge servers. A response with an unexpected format raises JudgeError."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from judges.protocols import JudgeError, JudgeUnavailableError

SUM_TOLERANCE = 0.02
"""How far the sum of half-precision probabilities may be from 1."""


def positive_integer(info: Mapping[str, Any], name: str) -> int:
    """Return the positive integer ``name`` in ``info``. Raises JudgeUnavailableError if it is missing or invalid."""
    value = info.get(name)
    if not isinstance(value, int) or value < 1:
        raise JudgeUnavailableError(f"/info has no {name}")
    return value


def list_of(rows: Any, count: int) -> list[Any]:
    """Return ``rows`` if it is a list of ``count`` items. Raises JudgeError."""
    if not isinstance(rows, list) or len(rows) != count:
        raise JudgeError(f"the response does not have {count} results")
    return rows


def objects(rows: Any) -> list[Mapping[str, Any]]:
    """Return ``rows`` if it is a list of JSON objects. Raises JudgeError."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise JudgeError("the response is not a list of objects")
    return rows


def number(value: Any) -> float:
    """Return ``value`` if it is a finite number. Raises JudgeError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise JudgeError("the response has a value that is not a number")
    return float(value)
