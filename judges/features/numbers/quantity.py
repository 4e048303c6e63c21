"""The quantity: a number, date or identifier as parsed."""

from decimal import Decimal
from enum import StrEnum

from msgspec import Struct


class QuantityKind(StrEnum):
    """Quantities of different kinds are not compared, except points with differences of percentages."""

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
    """A number that names a thing: section 4, Nr. 7, gate 12."""
    IDENTIFIER = "identifier"
    """A version, address, URL or code."""


class BoundKind(StrEnum):
    """How the words before a quantity limit it."""

    EXACT = "exact"
    ABOUT = "about"
    AT_LEAST = "at_least"
    AT_MOST = "at_most"


class Quantity(Struct, frozen=True, kw_only=True):
    """A quantity in a text.

    ``values`` are its readings in the base unit of ``unit`` (grams, metres, seconds, months …): one, or two if the
    separators are ambiguous ("1.250"). Dates have ``date`` (year, month, day; None if not stated) instead. ``unit`` is
    a currency, a dimension, or the kind of identifier. ``per`` is the period of a rate. ``noun`` holds the words
    counted. ``limit`` is ``until`` or ``from`` if a preposition makes a date or time the end or start of a span.
    ``first`` and ``last`` are token offsets; ``last`` is exclusive.
    """

    kind: QuantityKind
    text: str
    first: int
    last: int
    unit: str = ""
    values: tuple[Decimal, ...] = ()
    date: tuple[int | None, int | None, int | None] | None = None
    month_first: tuple[int | None, int | None, int | None] | None = None
    """The alternative reading of ``date``: to some readers, 5/3/2024 is the third of May."""
    per: tuple[str, Decimal] | None = None
    bound: BoundKind = BoundKind.EXACT
    denied: bool = False
    """Whether its bound comes from a negation ("do not exceed"), which then negates nothing else."""
    strict: bool = False
    """Whether it is stated to be exact ("exactly 3,000"), so that rounding does not excuse a difference."""
    change: bool = False
    """Whether it is the amount of a change or difference ("rose by 8 million", "12 more than") rather than the
    result."""
    leading: Decimal | None = None
    """The first part of a quantity in two units: the hour in "an hour and 20 minutes"."""
    opens: bool = False
    """Whether it begins a range that ends with the next quantity in the text."""
    limit: str = ""
    noun: tuple[str, ...] = ()
    factor: Decimal = Decimal(1)
    """The factor by which the written number was multiplied, for its scale and unit."""

    @property
    def key(self) -> str:
        """A key that is equal for quantities that express the same in different forms."""
        if self.date is not None:
            value = "-".join("?" if part is None else str(part) for part in self.date)
        elif self.values:
            value = f"{self.values[0].normalize():f}" if self.values[0].adjusted() < 40 else str(self.values[0])
        else:
            value = self.text.lower()
        per = f"/{self.per[0]}{self.per[1]}" if self.per else ""
        return f"#{self.kind}:{self.unit}:{value}{per}"
