"""A claim's quantities in the form that the evidence has them in."""

from collections.abc import Sequence

from judges.numbers import Kind, Quantity
from judges.signals.prepared import Prepared

_CONVERTED = frozenset((Kind.MEASURE, Kind.MONEY, Kind.PERCENT, Kind.POINTS, Kind.NUMBER, Kind.DATE, Kind.TIME))


def as_written(text: str, claim: Prepared, evidence: Sequence[Prepared]) -> str:
    """``text`` with each quantity of ``claim`` that the evidence gives in another form only ("three days" where it says
    "72 hours") put as it is put there. A model knows that two words mean the same, and hardly that two numbers do."""
    for mine in claim.quantities:
        if mine.kind not in _CONVERTED:
            continue
        same = [other.text for window in evidence for other in window.quantities if _same(mine, other)]
        if same and mine.text not in same and text.count(mine.text) == 1:
            text = text.replace(mine.text, same[0])
    return text


def _same(mine: Quantity, other: Quantity) -> bool:
    """By the likelier reading of each."""
    if (mine.kind, mine.unit, mine.per, mine.date) != (other.kind, other.unit, other.per, other.date):
        return False
    return mine.values[:1] == other.values[:1]
