"""Defines the quantity (a parsed number, date or identifier) and the rules for rounded values."""

from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum
from typing import Final

from msgspec import Struct


class QuantityKind(StrEnum):
    """The kind of a quantity. Quantities of different kinds are not compared, except percentage points with differences
    between percentages."""

    NUMBER = "number"
    PERCENT = "percent"
    POINTS = "points"
    """Percentage points; basis points are hundredths of them."""
    MONEY = "money"
    MEASURE = "measure"
    DATE = "date"
    TIME = "time"
    WEEKDAY = "weekday"
    ORDINAL = "ordinal"
    REFERENCE = "reference"
    """A number that identifies a thing: section 4, No. 7, gate 12."""
    IDENTIFIER = "identifier"
    """A version, address, URL or code."""


class BoundKind(StrEnum):
    """The bound that the words next to a quantity express."""

    EXACT = "exact"
    ABOUT = "about"
    AT_LEAST = "at_least"
    AT_MOST = "at_most"


class Quantity(Struct, frozen=True, kw_only=True):
    """A quantity in a text.

    ``values`` are its possible values, in the base unit of ``unit`` (grams, metres, seconds, months …). There are two
    if the separators are ambiguous ("1.250"). A date has ``date`` instead: year, month and day, each None if not
    stated. ``unit`` is a currency, a dimension, or the kind of identifier. ``per`` is the period of a rate. ``noun``
    holds the words for the things counted. ``limit`` is ``until`` or ``from`` if a preposition marks a date or time as
    the end or start of a span. ``first`` and ``last`` are token offsets; ``last`` is exclusive.
    """

    kind: QuantityKind
    text: str
    first: int
    last: int
    unit: str = ""
    values: tuple[Decimal, ...] = ()
    date: tuple[int | None, int | None, int | None] | None = None
    month_first: tuple[int | None, int | None, int | None] | None = None
    """``date`` read with the month first, if possible: 5/3/2024 may be the third of May."""
    per: tuple[str, Decimal] | None = None
    bound: BoundKind = BoundKind.EXACT
    denied: bool = False
    """Whether the quantity's bound comes from a negation ("do not exceed"). If so, the negation doesn't count as
    negating the statement."""
    strict: bool = False
    """Whether the quantity is stated to be exact ("exactly 3,000"), so that a difference can't be due to rounding."""
    change: bool = False
    """Whether the quantity is the amount of a change or difference ("rose by 8 million", "12 more than"), not its
    result."""
    leading: Decimal | None = None
    """The first part of a quantity in two units: the hour in "an hour and 20 minutes"."""
    opens: bool = False
    """Whether the quantity begins a range that ends with the next quantity in the text."""
    limit: str = ""
    noun: tuple[str, ...] = ()
    factor: Decimal = Decimal(1)
    """The factor by which the written number was multiplied, because of its scale and unit."""

    @property
    def key(self) -> str:
        """A key that is the same for all forms of a quantity."""
        if self.date is not None:
            value = "-".join("?" if part is None else str(part) for part in self.date)
        elif self.values:
            value = f"{self.values[0].normalize():f}" if self.values[0].adjusted() < 40 else str(self.values[0])
        else:
            value = self.text.lower()
        per = f"/{self.per[0]}{self.per[1]}" if self.per else ""
        return f"#{self.kind}:{self.unit}:{value}{per}"


_LARGEST: Final = Decimal(10) ** 15
_MOST_PLACES: Final = 10


def coarser(one: Quantity, other: Quantity) -> bool:
    """Return whether ``one`` is ``other``, rounded to the decimal places of ``one``. ``one`` must be in thousands or
    more."""
    value, exact = one.values[0] / one.factor, other.values[0] / one.factor
    return not one.strict and _places(value) > 0 and exact != value and _gives(value, exact)


def rounds_to(value: Decimal, other: Decimal) -> bool:
    """Return whether ``value`` is ``other`` rounded to the last place of ``value``, with at least three significant
    digits."""
    return _places(value) > 0 and len(value.as_tuple().digits) >= 3 and _gives(value, other)


def shortened(value: Decimal, other: Decimal, factor: Decimal) -> bool:
    """Apply ``rounds_to`` to both values, divided by ``factor``. Unlike ``rounds_to``, also accept numbers with only
    two digits, including whole numbers, if ``other`` has more decimal places."""
    if 2 * abs(value - other) > factor:
        return False  # Rounding changes a number by half a unit at most.
    value, other = value / factor, other / factor
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
