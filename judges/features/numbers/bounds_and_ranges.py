"""Reads the words around a quantity: its bound, its period, the other end of its range, and a second, smaller unit."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from msgspec.structs import replace

from judges.features.numbers import vocabulary
from judges.features.numbers.quantity import BoundKind, Quantity, QuantityKind
from judges.features.numbers.tokenizer import Token

_POWERS: Final = vocabulary.SQUARES | vocabulary.CUBES
_CHANGING: Final = (QuantityKind.NUMBER, QuantityKind.MONEY, QuantityKind.MEASURE)
_COMPARATIVES: Final = vocabulary.MORE_THAN | vocabulary.LESS_THAN
_BY: Final = ("by", "um")
_OF: Final = ("of", "von")
_BOUNDING: Final = frozenset({"to", "zu"}).union(
    vocabulary.APPROXIMATE, vocabulary.BETWEEN, vocabulary.THAN, vocabulary.AT_LEAST, vocabulary.AT_MOST
)
"""Words that turn the amount after them into a bound. Most of them are the last word of a phrase ("up to", "less
than").
"""
_SIDES: Final = (
    (vocabulary.BEFORE, BoundKind.AT_MOST),
    (vocabulary.AFTER, BoundKind.AT_LEAST),
    (vocabulary.APPROXIMATE, BoundKind.ABOUT),
)
"""Maps a preceding word to the bound that it sets on a date or time."""
_ARTICLES: Final = frozenset({"the", "den", "dem", "zum", "der", "le", "la", "les", "el", "los", "au"})


class Surroundings:
    """Reads the tokens around a quantity. Offsets are token positions. Positions outside the list have an empty
    token."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._end = len(tokens)

    def lower(self, index: int) -> str:
        return self._tokens[index].lower if 0 <= index < self._end else ""

    def _unit(self, index: int) -> tuple[str, Decimal, int] | None:
        word, last = self.lower(index), index + 1
        if word in _POWERS and (unit := vocabulary.UNITS.get(self.lower(last))) and unit[0] == "length":
            square = word in vocabulary.SQUARES
            return ("area", unit[1] ** 2, last + 1) if square else ("volume", unit[1] ** 3 * 1000, last + 1)
        if word in ("degrees", "degree", "°", "grad") and self.lower(last) in ("c", "f", "celsius", "fahrenheit"):
            return ("celsius" if self.lower(last)[0] == "c" else "fahrenheit", Decimal(1), last + 1)
        if word and self._tokens[index].kind == "cjk" and (unit := vocabulary.UNITS.get(word + self.lower(last))):
            return *unit, last + 1
        if unit := vocabulary.UNITS.get(word):
            return *unit, last
        return None

    def _finish(self, quantity: Quantity) -> Quantity:
        before = self.lower(quantity.first - 1)
        if before in _ARTICLES:
            before = self.lower(quantity.first - 2)
        if quantity.kind in (QuantityKind.DATE, QuantityKind.TIME):
            limit = "until" if before in vocabulary.UNTIL else "from" if before in vocabulary.FROM else ""
            bound = next((bound for words, bound in _SIDES if before in words), BoundKind.EXACT)
            return quantity if bound is BoundKind.EXACT and not limit else replace(quantity, limit=limit, bound=bound)
        bound, denied = self._bound(quantity.first)
        bound = self._bound_behind(quantity.last) if bound is BoundKind.EXACT else bound
        bound = quantity.bound if bound is BoundKind.EXACT else bound
        per = self._per(quantity.last) or self._period_before(quantity.first)
        strict = before in ("exactly", "precisely", "genau")
        change = quantity.kind in _CHANGING and self._changes(quantity.first, quantity.last)
        if bound is quantity.bound and per is None and not strict and not change:
            return quantity
        return replace(quantity, bound=bound, per=per, strict=strict, change=change, denied=denied)

    def _changes(self, first: int, last: int) -> bool:
        before = self.lower(first - 1)
        if before in vocabulary.APPROXIMATE:
            first -= 1
            before = self.lower(first - 1)
        if before in _BY and any(self.lower(first - offset) in vocabulary.CHANGED for offset in range(2, 5)):
            return True
        if before in _OF and self.lower(first - 2) in vocabulary.CHANGES:
            return True
        if self.lower(last) in _COMPARATIVES:
            return True
        return self.lower(last + 1) in _COMPARATIVES and any(
            self.lower(last + offset) in vocabulary.THAN for offset in range(2, 5)
        )

    def _bound(self, first: int) -> tuple[BoundKind, bool]:
        """Return the bound, and whether it results from a separate negation ("not exceed"). The "no" in "no more than"
        is not a separate negation."""
        before = self.lower(first - 1)
        if before == "." and self.lower(first - 2) in ("max", "min"):
            first -= 1
            before = self.lower(first - 1)
        if before not in _BOUNDING:
            return BoundKind.EXACT, False
        if before in vocabulary.APPROXIMATE:
            return BoundKind.ABOUT, False
        second = self.lower(first - 2)
        if (before, second) in (("to", "up"), ("zu", "bis")):
            return BoundKind.AT_MOST, False
        if before in vocabulary.BETWEEN:
            return BoundKind.AT_LEAST, False
        negated = second in vocabulary.NOT or self.lower(first - 3) in vocabulary.NOT
        compared = before in vocabulary.THAN
        if before in vocabulary.AT_LEAST or (compared and second in vocabulary.MORE_THAN):
            return (BoundKind.AT_MOST if negated else BoundKind.AT_LEAST), negated and not compared
        if before in vocabulary.AT_MOST or (compared and second in vocabulary.LESS_THAN):
            return (BoundKind.AT_LEAST if negated else BoundKind.AT_MOST), negated and not compared
        return BoundKind.EXACT, False

    def _bound_behind(self, last: int) -> BoundKind:
        """Return the bound that follows an amount, as in "5 or more", "18 or under" and "5+"."""
        word, follows = self.lower(last), self.lower(last + 1)
        if word == "or" and follows in vocabulary.OR_MORE:
            return BoundKind.AT_LEAST
        if word == "or" and follows in vocabulary.OR_LESS:
            return BoundKind.AT_MOST
        if word == "at" and follows in ("least", "most"):
            return BoundKind.AT_LEAST if follows == "least" else BoundKind.AT_MOST
        touches = word == "+" and self._tokens[last].start == self._tokens[last - 1].end
        return BoundKind.AT_LEAST if touches else BoundKind.EXACT

    def _per(self, index: int) -> tuple[str, Decimal] | None:
        for offset in range(3):
            token = self._tokens[index + offset] if index + offset < self._end else None
            if token is None or (token.kind == "mark" and token.text != "/") or token.lower in vocabulary.HOW_OFTEN:
                return None  # "10 mg twice daily" is not 10 mg a day.
            if token.lower in vocabulary.PERIODS:
                return vocabulary.PERIODS[token.lower]
            if token.lower in vocabulary.PER:
                unit = self._unit(index + offset + 1)
                if unit and unit[0] in ("duration", "months"):
                    return unit[0], unit[1]
        return None

    def _period_before(self, first: int) -> tuple[str, Decimal] | None:
        """Return the period in sentences such as "a year costs 360 euros" and "the annual fee is 360 euros"."""
        for index in range(first - 1, max(-1, first - 5), -1):
            token = self._tokens[index]
            if token.kind != "word":
                return None
            if token.lower in vocabulary.PERIODS:
                return vocabulary.PERIODS[token.lower]
            unit = vocabulary.UNITS.get(token.lower)
            if (
                unit
                and unit[0] in ("duration", "months")
                and self.lower(index - 1) in ("a", "per", "each", "every", "pro")
            ):
                return unit
        return None

    def _text(self, first: int, last: int) -> str:
        return " ".join(token.text for token in self._tokens[first:last])


_LIMITS: Final = frozenset(
    {"after", "to", "than", "until", "within", "up", "beyond", "from", "before", "later", "over"}
)
_AMOUNTS: Final = (
    QuantityKind.NUMBER,
    QuantityKind.PERCENT,
    QuantityKind.POINTS,
    QuantityKind.MONEY,
    QuantityKind.MEASURE,
)


def joined(tokens: Sequence[Token], found: Sequence[Quantity]) -> list[Quantity]:
    """Add missing units, scales and range ends to the quantities ``found`` among ``tokens``, using neighbouring
    quantities. Merge quantities that are given in two units."""
    quantities = list(found)
    _share(tokens, quantities)
    return _add_up(tokens, quantities)


def _share(tokens: Sequence[Token], found: list[Quantity]) -> None:
    """Give the "4" in "from 4 to 6 percent" the unit of the "6", and mark the first quantity of a range."""
    for index in range(len(found) - 2, -1, -1):
        one, other = found[index], found[index + 1]
        gap = [token.lower for token in tokens[one.last : other.first]]
        between = one.first > 0 and tokens[one.first - 1].lower in vocabulary.BETWEEN
        ranged = len(gap) == 1 and (gap[0] in vocabulary.THROUGH or (between and gap[0] in vocabulary.AND))
        if not ranged and (not gap or len(gap) > 2 or any(word not in vocabulary.JOINERS for word in gap)):
            continue
        if one.bound is BoundKind.AT_LEAST and between:
            found[index + 1] = other = replace(other, bound=BoundKind.AT_MOST)
        if one.kind is QuantityKind.MONEY and other.kind is QuantityKind.NUMBER and ranged:
            found[index + 1] = other = replace(other, kind=QuantityKind.MONEY, unit=one.unit, noun=())
            one = _scaled_as(one, other)
        elif one.kind is QuantityKind.NUMBER and other.kind in _AMOUNTS:
            noun = one.noun or other.noun
            one = replace(_scaled_as(one, other), kind=other.kind, unit=other.unit, per=other.per, noun=noun)
        elif (
            one.kind is QuantityKind.NUMBER
            and ranged
            and _is_day(one)
            and other.date is not None
            and other.date[2] is not None
        ):
            one = replace(one, kind=QuantityKind.DATE, values=(), date=(*other.date[:2], int(one.values[0])))
        changed = {token.lower for token in tokens[max(0, one.first - 4) : one.first]} & vocabulary.MOVED
        found[index] = replace(one, opens=True) if ranged and one.kind is other.kind and not changed else one


def _scaled_as(one: Quantity, other: Quantity) -> Quantity:
    """If a quantity has no scale or unit, copy the other quantity's."""
    factor = other.factor if one.factor == 1 else one.factor
    return replace(one, values=tuple(value / one.factor * factor for value in one.values), factor=factor)


def _is_day(quantity: Quantity) -> bool:
    day = quantity.values[0]
    return day == day.to_integral_value() and 1 <= day <= 31


def _add_up(tokens: Sequence[Token], found: list[Quantity]) -> list[Quantity]:
    """Merge quantities such as "1 hour and 30 minutes"."""
    whole: list[Quantity] = []
    for quantity in found:
        last = whole[-1] if whole else None
        if last is not None and _goes_on(tokens, last, quantity):
            text = " ".join(token.text for token in tokens[last.first : quantity.last])
            value = last.values[0] + quantity.values[0]
            leading = last.values[0] if last.leading is None else last.leading
            whole[-1] = replace(
                last, text=text, values=(value,), last=quantity.last, factor=quantity.factor, leading=leading
            )
        else:
            whole.append(quantity)
    return whole


def _goes_on(tokens: Sequence[Token], one: Quantity, other: Quantity) -> bool:
    """Return whether the second quantity continues the first in a smaller unit, as minutes do after hours."""
    if (
        one.kind is not QuantityKind.MEASURE
        or other.kind is not QuantityKind.MEASURE
        or one.unit != other.unit
        or one.per
        or other.per
    ):
        return False
    gap = [token.lower for token in tokens[one.last : other.first]]
    named = one.unit in ("duration", "months", "inch", "ounce") and other.bound is BoundKind.EXACT
    before = tokens[one.first - 1].lower if one.first else ""
    behind = tokens[other.last].lower if other.last < len(tokens) else ""
    if before in _LIMITS and behind in _LIMITS:  # As in "up to 2 years, two months after five years".
        return False
    return named and gap in ([], ["and"], ["und"], ["et"], ["y"], [","]) and other.values[0] < one.factor
