"""Completes quantities from their neighbours: "from 4 to 6 percent", "$5-10 million", "1 hour 30 minutes"."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from judges.features.numbers import vocabulary
from judges.features.numbers.quantity import BoundKind, Quantity, QuantityKind
from judges.features.numbers.tokenizer import Token

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
    """Complete the quantities ``found`` among ``tokens`` with what each takes from its neighbour (a unit, a scale, the
    end of its range), and merge quantities in two units."""
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
    """Give a quantity without a scale and unit those of the other."""
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
    """Whether the second quantity continues the first in a smaller unit, as minutes do after hours."""
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
