"""Parses the responses of judge servers. A response with an unexpected format raises JudgeError."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from judges.protocols import JudgeError, JudgeUnavailableError

_SUM_TOLERANCE = 0.02
"""How far the sum of half-precision probabilities may be from 1."""
_TOLERANCE = 0.001
"""How far a probability may be outside 0 to 1 because of rounding."""


def positive_integer(info: Mapping[str, Any], name: str) -> int:
    """Return the positive integer ``name`` in ``info``. Raises JudgeUnavailableError if it is missing or invalid."""
    value = info.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise JudgeUnavailableError(f"/info has no {name}")
    return value


def list_of(rows: Any, count: int) -> list[Any]:
    """Return ``rows`` if it is a list of ``count`` items; otherwise, raise JudgeError."""
    if not isinstance(rows, list) or len(rows) != count:
        raise JudgeError(f"expected {count} results in the response")
    return rows


def objects(rows: Any) -> list[Mapping[str, Any]]:
    """Return ``rows`` if it is a list of JSON objects; otherwise, raise JudgeError."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise JudgeError("the response is not a list of objects")
    return rows


def number(value: Any) -> float:
    """Return ``value`` if it is a finite number; otherwise, raise JudgeError."""
    most = sys.float_info.max
    if isinstance(value, bool) or not isinstance(value, int | float) or not -most <= value <= most:
        raise JudgeError("the response has a value that is not a number")
    return float(value)


def probability(value: Any) -> float:
    """Return ``value`` if it is a number from 0 to 1; otherwise, raise JudgeError."""
    found = number(value)
    if not -_TOLERANCE <= found <= 1.0 + _TOLERANCE:
        raise JudgeError("the response has a probability outside 0 to 1")
    return min(1.0, max(0.0, found))


def distribution(values: Sequence[Any]) -> list[float]:
    """Return ``values`` if they are probabilities that sum to 1; otherwise, raise JudgeError."""
    found = [probability(value) for value in values]
    if abs(sum(found) - 1.0) > _SUM_TOLERANCE:
        raise JudgeError("the probabilities of a pair do not sum to 1")
    return found
