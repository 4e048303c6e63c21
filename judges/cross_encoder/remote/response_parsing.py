"""Reading what a judge server answered: what has another form than expected is a JudgeError."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from judges.protocols import JudgeError, JudgeUnavailableError

SUM_TOLERANCE = 0.02
"""Half-precision probabilities add up to 1 no closer than this."""


def whole(info: Mapping[str, Any], name: str) -> int:
    """The whole number, 1 or more, that ``info`` has by that name. Raises JudgeUnavailableError where it has none."""
    value = info.get(name)
    if not isinstance(value, int) or value < 1:
        raise JudgeUnavailableError(f"/info tells no {name}")
    return value


def items(rows: Any, count: int) -> list[Any]:
    """``rows``, a list of ``count`` items."""
    if not isinstance(rows, list) or len(rows) != count:
        raise JudgeError(f"the answer does not have {count} results")
    return rows


def objects(rows: Any) -> list[Mapping[str, Any]]:
    """``rows``, a list of JSON objects."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise JudgeError("the answer does not have the form expected")
    return rows


def number(value: Any) -> float:
    """``value``, a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise JudgeError("the answer has something other than a number where one is due")
    return float(value)
