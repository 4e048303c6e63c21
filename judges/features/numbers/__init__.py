"""Quantities, dates and identifiers of a text, and how those of a claim stand to those of its evidence.

Written forms do not matter: "2.1 billion" is "$2.1B" save for the currency, "14 March 2024" is "2024-03-14". Values are
exact decimals. The time taken is linear in the text.
"""

from judges.features.numbers.extraction import extract
from judges.features.numbers.number_comparison import (
    QuantityComparison,
    QuantityFinding,
    Relation,
    compare_quantities,
    lacking,
    relate,
    within,
)
from judges.features.numbers.quantity import BoundKind, Kind, Quantity
from judges.features.numbers.tokenizer import Token, normalise, scan

__all__ = [
    "BoundKind",
    "Kind",
    "Quantity",
    "QuantityComparison",
    "QuantityFinding",
    "Relation",
    "Token",
    "compare",
    "compare_quantities",
    "extract",
    "lacking",
    "normalise",
    "quantities",
    "relate",
    "scan",
    "within",
]


def quantities(text: str) -> list[Quantity]:
    """The quantities of a text, in order of their place in it."""
    return extract(scan(normalise(text)))


def compare(claim: str, evidence: str) -> QuantityComparison:
    """Say for each quantity of ``claim`` whether ``evidence`` agrees, gives another value for what looks like the same
    thing (same kind, unit and counted noun), or says nothing of it."""
    return compare_quantities(quantities(claim), quantities(evidence))
