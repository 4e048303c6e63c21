"""Rewrites the quantities in a claim in the form used in the evidence."""

from collections.abc import Sequence

from judges.features.numbers import QuantityKind
from judges.features.parsed_text import Prepared

_CONVERTED = frozenset(
    (
        QuantityKind.MEASURE,
        QuantityKind.MONEY,
        QuantityKind.PERCENT,
        QuantityKind.POINTS,
        QuantityKind.NUMBER,
        QuantityKind.DATE,
        QuantityKind.TIME,
    )
)


def as_written(text: str, claim: Prepared, evidence: Sequence[Prepared]) -> str:
    """Rewrite each quantity of ``claim`` in ``text`` that the evidence gives only in a different form, such as "72
    hours" for "three days", in that form. A model recognizes synonymous words, but rarely equivalent numbers."""
    said = {other.text for window in evidence for other in window.quantities} if claim.quantities else set()
    unsaid = [mine for mine in claim.quantities if mine.kind in _CONVERTED and mine.text not in said]
    if not unsaid:
        return text
    forms: dict[str, str] = {}
    for window in evidence:
        for other in window.quantities:
            forms.setdefault(other.key, other.text)
    for mine in unsaid:
        form = forms.get(mine.key)
        if form and text.count(mine.text) == 1:
            text = text.replace(mine.text, form)
    return text
