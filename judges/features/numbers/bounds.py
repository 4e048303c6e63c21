"""A place in a token list, and what the words round a quantity say of it: its bound, its period, the end of a span."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from msgspec.structs import replace

from judges.features.numbers import vocabulary as tables
from judges.features.numbers.quantity import Bound, Kind, Quantity
from judges.features.numbers.tokenizer import Token

_POWERS: Final = tables.SQUARES | tables.CUBES
_CHANGING: Final = (Kind.NUMBER, Kind.MONEY, Kind.MEASURE)
_COMPARATIVES: Final = tables.MORE_THAN | tables.LESS_THAN
_BY: Final = ("by", "um")
_OF: Final = ("of", "von")
_BOUNDING: Final = frozenset({"to", "zu"}).union(
    tables.APPROXIMATE, tables.BETWEEN, tables.THAN, tables.AT_LEAST, tables.AT_MOST
)
"""Words right before an amount that bound it; before most there is another."""
_SIDES: Final = ((tables.BEFORE, Bound.AT_MOST), (tables.AFTER, Bound.AT_LEAST), (tables.APPROXIMATE, Bound.ABOUT))
"""How a word before a date or time bounds it."""
_ARTICLES: Final = frozenset({"the", "den", "dem", "zum", "der", "le", "la", "les", "el", "los", "au"})


class Surroundings:
    """Reads round a quantity. The offsets are those of tokens; outside the list every token is empty."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._end = len(tokens)

    def lower(self, index: int) -> str:
        return self._tokens[index].lower if 0 <= index < self._end else ""

    def _unit(self, index: int) -> tuple[str, Decimal, int] | None:
        word, last = self.lower(index), index + 1
        if word in _POWERS and (unit := tables.UNITS.get(self.lower(last))) and unit[0] == "length":
            square = word in tables.SQUARES
            return ("area", unit[1] ** 2, last + 1) if square else ("volume", unit[1] ** 3 * 1000, last + 1)
        if word in ("degrees", "degree", "°", "grad") and self.lower(last) in ("c", "f", "celsius", "fahrenheit"):
            return ("celsius" if self.lower(last)[0] == "c" else "fahrenheit", Decimal(1), last + 1)
        if word and self._tokens[index].kind == "cjk" and (unit := tables.UNITS.get(word + self.lower(last))):
            return *unit, last + 1
        if unit := tables.UNITS.get(word):
            return *unit, last
        return None

    def _finish(self, quantity: Quantity) -> Quantity:
        before = self.lower(quantity.first - 1)
        if before in _ARTICLES:
            before = self.lower(quantity.first - 2)
        if quantity.kind in (Kind.DATE, Kind.TIME):
            limit = "until" if before in tables.UNTIL else "from" if before in tables.FROM else ""
            bound = next((bound for words, bound in _SIDES if before in words), Bound.EXACT)
            return quantity if bound is Bound.EXACT and not limit else replace(quantity, limit=limit, bound=bound)
        bound, denied = self._bound(quantity.first)
        bound = self._bound_behind(quantity.last) if bound is Bound.EXACT else bound
        bound = quantity.bound if bound is Bound.EXACT else bound
        per = self._per(quantity.last) or self._period_before(quantity.first)
        strict = before in ("exactly", "precisely", "genau")
        change = quantity.kind in _CHANGING and self._changes(quantity.first, quantity.last)
        if bound is quantity.bound and per is None and not strict and not change:
            return quantity
        return replace(quantity, bound=bound, per=per, strict=strict, change=change, denied=denied)

    def _changes(self, first: int, last: int) -> bool:
        before = self.lower(first - 1)
        if before in tables.APPROXIMATE:
            first -= 1
            before = self.lower(first - 1)
        if before in _BY and any(self.lower(first - offset) in tables.CHANGED for offset in range(2, 5)):
            return True
        if before in _OF and self.lower(first - 2) in tables.CHANGES:
            return True
        if self.lower(last) in _COMPARATIVES:
            return True
        return self.lower(last + 1) in _COMPARATIVES and any(
            self.lower(last + offset) in tables.THAN for offset in range(2, 5)
        )

    def _bound(self, first: int) -> tuple[Bound, bool]:
        """The bound, and whether it is that of a denial which counts as one ("not exceed", unlike "no more")."""
        before = self.lower(first - 1)
        if before == "." and self.lower(first - 2) in ("max", "min"):
            first -= 1
            before = self.lower(first - 1)
        if before not in _BOUNDING:
            return Bound.EXACT, False
        if before in tables.APPROXIMATE:
            return Bound.ABOUT, False
        second = self.lower(first - 2)
        if (before, second) in (("to", "up"), ("zu", "bis")):
            return Bound.AT_MOST, False
        if before in tables.BETWEEN:
            return Bound.AT_LEAST, False
        negated = second in tables.NOT or self.lower(first - 3) in tables.NOT
        compared = before in tables.THAN
        if before in tables.AT_LEAST or (compared and second in tables.MORE_THAN):
            return (Bound.AT_MOST if negated else Bound.AT_LEAST), negated and not compared
        if before in tables.AT_MOST or (compared and second in tables.LESS_THAN):
            return (Bound.AT_LEAST if negated else Bound.AT_MOST), negated and not compared
        return Bound.EXACT, False

    def _bound_behind(self, last: int) -> Bound:
        """ "5 or more", "18 or under", "5+"."""
        word, follows = self.lower(last), self.lower(last + 1)
        if word == "or" and follows in tables.OR_MORE:
            return Bound.AT_LEAST
        if word == "or" and follows in tables.OR_LESS:
            return Bound.AT_MOST
        if word == "at" and follows in ("least", "most"):
            return Bound.AT_LEAST if follows == "least" else Bound.AT_MOST
        touches = word == "+" and self._tokens[last].start == self._tokens[last - 1].end
        return Bound.AT_LEAST if touches else Bound.EXACT

    def _per(self, index: int) -> tuple[str, Decimal] | None:
        for offset in range(3):
            token = self._tokens[index + offset] if index + offset < self._end else None
            if token is None or (token.kind == "mark" and token.text != "/") or token.lower in tables.HOW_OFTEN:
                return None  # 10 mg twice daily are not 10 a day
            if token.lower in tables.PERIODS:
                return tables.PERIODS[token.lower]
            if token.lower in tables.PER:
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
            if token.lower in tables.PERIODS:
                return tables.PERIODS[token.lower]
            unit = tables.UNITS.get(token.lower)
            if (
                unit
                and unit[0] in ("duration", "months")
                and self.lower(index - 1) in ("a", "per", "each", "every", "pro")
            ):
                return unit
        return None

    def _text(self, first: int, last: int) -> str:
        return " ".join(token.text for token in self._tokens[first:last])
