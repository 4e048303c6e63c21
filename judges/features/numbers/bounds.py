"""Reads the words around a quantity: its bound (at least, about), its period, the start or end of a span."""

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
"""Words right before an amount that bound it; most of them follow another such word."""
_SIDES: Final = (
    (vocabulary.BEFORE, BoundKind.AT_MOST),
    (vocabulary.AFTER, BoundKind.AT_LEAST),
    (vocabulary.APPROXIMATE, BoundKind.ABOUT),
)
"""How a preceding word bounds a date or time."""
_ARTICLES: Final = frozenset({"the", "den", "dem", "zum", "der", "le", "la", "les", "el", "los", "au"})


class Surroundings:
    """Reads the tokens around a quantity. Offsets count tokens; a token outside the list is empty."""

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
        """Return the bound, and whether it comes from a negation that counts as one ("not exceed", unlike "no
        more")."""
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
        """ "5 or more", "18 or under", "5+"."""
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
        """The period of "a year costs 360 euros" and "the annual fee is 360 euros"."""
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
