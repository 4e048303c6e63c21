"""Decides whether a number is a rounded form of another, by its number of decimal places."""

from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from judges.features.numbers.quantity import Quantity

_LARGEST: Final = Decimal(10) ** 15
_MOST_PLACES: Final = 10


def coarser(one: Quantity, other: Quantity) -> bool:
    """Whether ``one``, in thousands or more, gives with one decimal what ``other`` gives with more."""
    value, exact = one.values[0] / one.factor, other.values[0] / one.factor
    return not one.strict and _places(value) > 0 and exact != value and _gives(value, exact)


def rounds_to(value: Decimal, other: Decimal) -> bool:
    """Whether ``value`` is ``other`` rounded to the last place of ``value``, with at least three significant digits."""
    return _places(value) > 0 and len(value.as_tuple().digits) >= 3 and _gives(value, other)


def shortened(value: Decimal, other: Decimal) -> bool:
    """Like ``rounds_to``, but also for whole numbers with at least two digits, if ``other`` has more places."""
    places = _places(value)
    if places < 0 or _places(other.normalize()) <= places or len(value.as_tuple().digits) < 2:
        return False
    return (places > 0 or len(value.normalize().as_tuple().digits) > 1) and _gives(value, other)


def _places(value: Decimal) -> int:
    """Return the number of decimal places as written; negative for thousands and for values that are not numbers."""
    exponent = value.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else -1


def _gives(value: Decimal, exact: Decimal) -> bool:
    if abs(exact) > _LARGEST:
        return False
    return exact.quantize(Decimal(1).scaleb(-min(_places(value), _MOST_PLACES)), rounding=ROUND_HALF_UP) == value
