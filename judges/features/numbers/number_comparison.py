"""Compares the quantities in a claim with those in the evidence."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from enum import StrEnum
from itertools import pairwise
from typing import Final

from msgspec import Struct

from judges.features.numbers.quantity import BoundKind, Quantity, QuantityKind, coarser, rounds_to, shortened
from judges.features.numbers.vocabulary import CENTS

_LASTING: Final = ("duration", "months")
_THOUSAND: Final = Decimal(1000)
_ONE: Final = Decimal(1)
_AN_HOUR: Final = 60
_A_MOMENT: Final = 15
"""Tolerance in minutes for approximate times such as "about ten"."""
_ABOUT: Final = Decimal("0.05")
_LOOSELY: Final = Decimal("0.12")
_BINARY: Final = frozenset(Decimal("1.024") ** power for power in (1, 2, 3))
_MONTH_SECONDS: Final = Decimal(2629800)
_IN_MONTHS_TOLERANCE: Final = Decimal("0.05")


Date = tuple[int | None, int | None, int | None]


class Relation(StrEnum):
    """How the evidence relates to a quantity in a claim: it has the same value, it has a different value for apparently
    the same thing, or it doesn't mention the quantity."""

    AGREE = "agree"
    DIFFER = "differ"
    ABSENT = "absent"


# Aliases for the enumeration's members, because looking up a member in its class takes as long as comparing two
# numbers.
_AGREE: Final = Relation.AGREE
_DIFFER: Final = Relation.DIFFER
_ABSENT: Final = Relation.ABSENT
_EXACT: Final = BoundKind.EXACT
_ROUGHLY: Final = BoundKind.ABOUT
_AT_LEAST: Final = BoundKind.AT_LEAST
_AT_MOST: Final = BoundKind.AT_MOST
_NUMBER: Final = QuantityKind.NUMBER
_PERCENT: Final = QuantityKind.PERCENT
_POINTS: Final = QuantityKind.POINTS
_MONEY: Final = QuantityKind.MONEY
_MEASURE: Final = QuantityKind.MEASURE
_DATE: Final = QuantityKind.DATE
_TIME: Final = QuantityKind.TIME
_WEEKDAY: Final = QuantityKind.WEEKDAY
_ORDINAL: Final = QuantityKind.ORDINAL
_IDENTIFIER: Final = QuantityKind.IDENTIFIER


class QuantityFinding(Struct, frozen=True, kw_only=True):
    """The result for one of the claim's quantities. ``other`` is the quantity in the text that it agrees with or
    differs from."""

    quantity: Quantity
    relation: Relation
    other: Quantity | None = None


_WITH_UNITS: Final = (_MONEY, _MEASURE, _PERCENT)
"""Kinds of quantity whose unit may be omitted once it has been given ("48 million euros on roads and 12 million on
parks")."""


class QuantityComparison(Struct, frozen=True, kw_only=True):
    """The results for the claim's quantities, in order."""

    findings: tuple[QuantityFinding, ...]


def relate(claim: Quantity, text: Quantity) -> Relation:
    """Relate two quantities. The result is ``absent`` if they cannot be compared because their kinds, units or things
    differ."""
    return _relation(claim, text) or _unequal(claim, text)


def agree(claim: Quantity, text: Quantity) -> bool:
    """Return whether two quantities agree. This is cheaper than ``relate``, which also compares unequal quantities."""
    return _relation(claim, text) is _AGREE


def _relation(claim: Quantity, text: Quantity) -> Relation | None:
    """Relate two quantities. Return None for unequal amounts of the same thing."""
    if claim.kind is not text.kind:
        return _across_kinds(claim, text)
    if claim.kind is _DATE:
        return _dates(claim, text)
    if claim.kind is _IDENTIFIER:
        if claim.unit != text.unit:
            return _ABSENT
        mine, theirs = claim.text.lower(), text.text.lower()
        same = mine.endswith(theirs) or theirs.endswith(mine) if claim.unit == "decade" else mine == theirs
        return _AGREE if same or (claim.unit == "version" and _of_version(mine, theirs)) else _DIFFER
    if claim.kind in (_NUMBER, _ORDINAL) and not _same_noun(claim, text):
        return _ABSENT
    if claim.kind is _TIME:
        return _times(claim, text)
    if claim.kind is _WEEKDAY:
        return _limits(claim, text) if claim.values == text.values else _DIFFER
    return _amounts(claim, text)


def _of_version(one: str, other: str) -> bool:
    """Return whether one version is a shorter form of the other, as 2.1 is of 2.1.0."""
    short, long = sorted((one.lstrip("v"), other.lstrip("v")), key=len)
    return long.startswith(f"{short}.")


def within(quantity: Quantity, low: Quantity, high: Quantity) -> bool:
    """Return whether the quantity is in the range from ``low`` to ``high``."""
    if not quantity.kind is low.kind is high.kind:
        return False
    if quantity.kind is _DATE:
        return _in_span(quantity.date, low.date, high.date)
    if quantity.kind in (_WEEKDAY, _TIME) and low.values > high.values:
        return quantity.values >= low.values or quantity.values <= high.values
    if not (quantity.values and low.values and high.values) or quantity.unit != high.unit:
        return False
    return low.values[0] <= quantity.values[0] <= high.values[0]


def _in_span(date: Date | None, low: Date | None, high: Date | None) -> bool:
    """Return whether a date is in a span. If the dates have no years, the span may include the turn of the year ("from
    October to April")."""
    after, before = _order(low, date) >= 0, _order(high, date) <= 0
    passes = low is not None and high is not None and low[0] is high[0] is None and _order(low, high) < 0
    return after or before if passes else after and before


def lacking(claim: Sequence[Quantity], text: Sequence[Quantity]) -> list[Quantity]:
    """Return the claim's quantities that the text does not agree with."""
    missing = [quantity for quantity in claim if _agreeing(quantity, text) is None]
    return [
        quantity for quantity in missing if quantity.kind is not _POINTS or _find(quantity, text).relation is not _AGREE
    ]


def compare_quantities(claim: Sequence[Quantity], text: Sequence[Quantity]) -> QuantityComparison:
    """Look up each of the claim's quantities in the text. Agreement with one quantity in the text outweighs a
    difference from another."""
    return QuantityComparison(findings=tuple(_find(quantity, text) for quantity in claim))


def _find(quantity: Quantity, text: Sequence[Quantity]) -> QuantityFinding:
    if agreeing := _agreeing(quantity, text):
        return QuantityFinding(quantity=quantity, relation=_AGREE, other=agreeing)
    differing = next((other for other in _comparable(quantity, text) if relate(quantity, other) is _DIFFER), None)
    if quantity.kind is _POINTS and differing is None:
        return _change(quantity, [other for other in text if other.kind is _PERCENT])
    relation = _ABSENT if differing is None else _DIFFER
    return QuantityFinding(quantity=quantity, relation=relation, other=differing)


def _agreeing(quantity: Quantity, text: Sequence[Quantity]) -> Quantity | None:
    """Return the quantity in ``text`` that agrees with ``quantity`` or, if ``quantity`` can be derived from several
    quantities in ``text``, the last of those. Otherwise, return None."""
    for other in _comparable(quantity, text):
        if agree(quantity, other):
            return other
    return _derived(quantity, text)


def _comparable(quantity: Quantity, text: Sequence[Quantity]) -> Iterator[Quantity]:
    """Yield the quantities in the text that may be about the same thing as ``quantity``."""
    kind, unit = quantity.kind, quantity.unit
    for other in text:
        if other.kind is not kind:
            if kind is not _NUMBER and other.kind is not _NUMBER:
                continue
            if kind is _NUMBER and quantity.noun and other.kind is _TIME:  # "10 seats" doesn't mean ten o'clock.
                continue
        elif kind is _MEASURE and other.unit != unit and unit not in _LASTING:  # most units differ
            continue
        yield other


def _change(points: Quantity, percents: Sequence[Quantity]) -> QuantityFinding:
    """Compare percentage points with the difference between two percentages in the text ("from 4 to 6 percent")."""
    for start, end in pairwise(percents):
        if abs(end.values[0] - start.values[0]) == abs(points.values[0]):
            return QuantityFinding(quantity=points, relation=_AGREE, other=end)
    relation = _DIFFER if len(percents) == 2 else _ABSENT
    return QuantityFinding(quantity=points, relation=relation, other=percents[-1] if len(percents) == 2 else None)


def _derived(quantity: Quantity, text: Sequence[Quantity]) -> Quantity | None:
    """If the claim's quantity is the sum of quantities in the text, the time between them, or the change from one to
    another, return the last of them."""
    if quantity.unit == "duration":
        times = [other for other in text if other.kind is _TIME]
        for start, end in pairwise(times):
            if (end.values[0] - start.values[0]) * 60 == quantity.values[0]:
                return end
    if (before := _changed(quantity, text)) is not None:
        return before
    if quantity.kind in (_MONEY, _MEASURE, _NUMBER):
        parts = [
            other for other in text if other.kind is quantity.kind and other.unit == quantity.unit and other.values
        ]
        if 2 <= len(parts) <= 6 and sum(other.values[0] for other in parts) == quantity.values[0]:
            return parts[-1]
        if quantity.change:
            for start, end in pairwise(parts):
                if abs(end.values[0] - start.values[0]) == quantity.values[0]:
                    return end
    return None


def _changed(quantity: Quantity, text: Sequence[Quantity]) -> Quantity | None:
    """Return a quantity in the text that, together with the amount of a change in the text, results in the claim's
    quantity. For example, "rose by half a point to 4.5 percent" implies that the value was 4 percent before."""
    alike = [other for other in text if (other.kind, other.unit) == (quantity.kind, quantity.unit) and other.values]
    by = [change for change in alike if change.change]
    if quantity.kind is _PERCENT:
        by = [change for change in text if change.kind is _POINTS]
    pairs = ((change, other) for change in by for other in alike if other is not change and quantity.values)
    return next(
        (other for change, other in pairs if abs(other.values[0] - quantity.values[0]) == abs(change.values[0])), None
    )


def _across_kinds(claim: Quantity, text: Quantity) -> Relation:
    if claim.kind is _NUMBER:
        number, other = claim, text
    elif text.kind is _NUMBER:
        number, other = text, claim
    else:
        alike = {claim.kind, text.kind} == {_PERCENT, _POINTS} and claim.values == text.values
        return _AGREE if alike else _ABSENT
    if other.kind is _PERCENT and not number.noun and 0 < number.values[0] <= 1:  # a share of 0.8 is 80 %
        return _AGREE if number.values[0] * 100 == other.values[0] else _ABSENT
    if other.kind is _TIME:
        return _AGREE if other.values[0] == number.values[0] * 60 else _ABSENT
    if other.kind is _DATE:
        year = other.date[0] if other.date else None
        return _AGREE if year is not None and number.values[0] == year else _ABSENT
    bare = other.kind in _WITH_UNITS and not number.noun and not number.unit
    same = claim.values == text.values or other.text.split(" ")[0] == number.text
    return _limits(claim, text) if bare and same else _ABSENT


def _dates(claim: Quantity, text: Quantity) -> Relation:
    """Relate two dates. If a date is ambiguous, the reading that matches best counts."""
    found = {
        _same_day(mine, theirs)
        for mine in (claim.date, claim.month_first)
        for theirs in (text.date, text.month_first)
        if mine is not None and theirs is not None
    }
    if found == {_DIFFER} and _on_its_side(claim, text, _order(claim.date, text.date)):
        return _AGREE
    if found == {_DIFFER} and claim.bound is _EXACT and _on_its_side(text, claim, _order(text.date, claim.date)):
        return _ABSENT
    return _limits(claim, text) if _AGREE in found else _ABSENT if _ABSENT in found else _DIFFER


def _order(claim: Date | None, text: Date | None) -> int:
    """Return -1 if the text's date is before the claim's, 1 if it is after the claim's, or 0 if that is unclear."""
    for mine, theirs in zip(claim or (), text or (), strict=False):
        if mine == theirs:
            continue
        if mine is None or theirs is None:
            return 0
        return 1 if theirs > mine else -1
    return 0


def _on_its_side(claim: Quantity, text: Quantity, order: int) -> bool:
    """Return whether the text's date or time satisfies the claim's bound ("before" or "after")."""
    return not text.limit and order == {_AT_MOST: -1, _AT_LEAST: 1}.get(claim.bound)


def _times(claim: Quantity, text: Quantity) -> Relation:
    apart = min(abs(mine - theirs) for mine in claim.values for theirs in text.values)
    if not apart:
        return _limits(claim, text)
    if any(
        _on_its_side(claim, text, 1 if theirs > mine else -1)
        for mine, theirs in zip(claim.values, text.values, strict=False)
    ):
        return _AGREE
    if _ROUGHLY in (claim.bound, text.bound) and apart <= _AN_HOUR:
        return _AGREE if apart <= _A_MOMENT else _ABSENT
    return _DIFFER


def _same_day(claim: Date, text: Date) -> Relation:
    same = unsaid = False
    for mine, theirs in zip(claim, text, strict=True):
        if mine is None:
            continue
        if theirs is None:
            unsaid = True
        elif mine != theirs:
            return _DIFFER
        else:
            same = True
    return _AGREE if same and not unsaid else _ABSENT


def _limits(claim: Quantity, text: Quantity) -> Relation:
    opposite = claim.limit and text.limit and claim.limit != text.limit
    return _DIFFER if opposite else _AGREE


def _same_noun(claim: Quantity, text: Quantity) -> bool:
    if not claim.noun or not text.noun:
        return True
    for mine in claim.noun:
        for theirs in text.noun:
            if mine[:5] == theirs[:5]:
                return True
    return False


def _amounts(claim: Quantity, text: Quantity) -> Relation | None:
    mine, theirs = claim.values, text.values
    if claim.unit != text.unit:
        if claim.kind is not _MONEY:
            lasting = claim.unit in _LASTING and text.unit in _LASTING
            return _durations(claim, text) if lasting else _ABSENT
        if CENTS not in (claim.unit, text.unit):
            return _DIFFER if set(mine) & set(theirs) else _ABSENT
    if claim.per and text.per and claim.per != text.per:
        if claim.per[0] != text.per[0]:
            return _DIFFER if mine == theirs else _ABSENT
        mine, theirs = _in_a_common_period(claim, text)
    for value in mine:
        for other in theirs:
            if _fits(value, claim, other, text):
                return _AGREE
    return None


def _in_a_common_period(claim: Quantity, text: Quantity) -> tuple[tuple[Decimal, ...], tuple[Decimal, ...]]:
    """Return the values of two quantities, as rates of the same period if both are rates."""
    if not claim.per or not text.per or claim.per == text.per:
        return claim.values, text.values
    return tuple(value * text.per[1] for value in claim.values), tuple(value * claim.per[1] for value in text.values)


def _unequal(claim: Quantity, text: Quantity) -> Relation:
    """Return the relation of two unequal amounts in the same unit. Unequal amounts may still both be correct."""
    (mine, *_), (theirs, *_) = _in_a_common_period(claim, text)
    if _alike(claim, text) or (claim.unit == "mass" and _of_bodies(claim.values[0], text.values[0])):
        return _ABSENT
    if claim.change is not text.change:  # one is a change and the other a result
        return _ABSENT
    if not _excluded(mine, claim.bound, theirs, text.bound):
        return _ABSENT
    whole = (text.leading is not None and mine == text.leading) or (
        claim.leading is not None and theirs == claim.leading
    )
    coarse = (claim.factor >= _THOUSAND and coarser(claim, text)) or (text.factor >= _THOUSAND and coarser(text, claim))
    return _ABSENT if whole or coarse else _DIFFER


def _alike(claim: Quantity, text: Quantity) -> bool:
    """Return whether amounts that differ may stand for the same value. One of them may be rounded to two digits, use
    binary units, or use the scale of a table ("in thousands"). Both may be bounds, such as "more than 50" and "at least
    51"."""
    mine, theirs = claim.values[0], text.values[0]
    if claim.strict or text.strict or not mine or not theirs:
        return False
    if claim.unit == "data" and max(mine, theirs) / min(mine, theirs) in _BINARY:
        return True
    if claim.kind is _NUMBER and claim.bound is text.bound in (_AT_LEAST, _AT_MOST) and abs(mine - theirs) == 1:
        return True
    if (claim.bound is _ROUGHLY) is not (text.bound is _ROUGHLY) and abs(mine - theirs) <= _LOOSELY * max(mine, theirs):
        return True
    if shortened(mine, theirs, claim.factor):
        return True
    scaled = [theirs * 1000**power for power in (1, 2, 3)] if claim.factor >= _THOUSAND and text.factor == 1 else []
    return mine in scaled or any(shortened(mine, other, claim.factor) for other in scaled)


def _of_bodies(one: Decimal, other: Decimal) -> bool:
    """Return whether one amount is a body weight and the other a dose."""
    small, large = sorted((one, other))
    if not small or large < _THOUSAND or small * _THOUSAND > large:
        return False
    return small.normalize().as_tuple().digits != large.normalize().as_tuple().digits  # "2 kg" for "2 g" is a mistake.


def _durations(claim: Quantity, text: Quantity) -> Relation:
    """Compare days with months. Because months have no exact length, the durations agree if they differ by less than a
    twentieth, and differ if they do so by more than a quarter."""
    mine = claim.values[0] * (_MONTH_SECONDS if claim.unit == "months" else 1)
    theirs = text.values[0] * (_MONTH_SECONDS if text.unit == "months" else 1)
    apart = abs(mine - theirs) / (max(mine, theirs) or Decimal(1))
    if apart <= _IN_MONTHS_TOLERANCE:
        return _AGREE
    exact = claim.bound is _EXACT and text.bound is _EXACT
    return _DIFFER if apart > Decimal("0.25") and exact else _ABSENT


def _fits(value: Decimal, claim: Quantity, other: Decimal, text: Quantity) -> bool:
    if value == other:
        return not _opposed(claim.bound, text.bound)
    if claim.bound is _AT_LEAST:
        return other >= value and text.bound in (_EXACT, _ROUGHLY)
    if claim.bound is _AT_MOST:
        return other <= value and text.bound in (_EXACT, _ROUGHLY)
    if claim.bound is _ROUGHLY or text.bound is _ROUGHLY:
        return claim.bound is not text.bound and abs(value - other) <= _ABOUT * max(abs(value), abs(other))
    if claim.strict or (value.same_quantum(_ONE) and claim.factor == 1):  # A whole number doesn't count as rounded.
        return False
    return rounds_to(value / claim.factor, other / claim.factor)


def _opposed(one: BoundKind, other: BoundKind) -> bool:
    return (one is _AT_LEAST and other is _AT_MOST) or (one is _AT_MOST and other is _AT_LEAST)


def _excluded(mine: Decimal, claim: BoundKind, theirs: Decimal, text: BoundKind) -> bool:
    """Return whether two unequal amounts cannot both be true of the same thing."""
    if claim is text or _opposed(claim, text):
        return True
    if text is _AT_LEAST:
        return mine < theirs
    if text is _AT_MOST:
        return mine > theirs
    return True
