"""Extracts quantities, dates and identifiers from text, and compares those in a claim with those in its evidence.

Only the value matters, not how it is written: "$2.1 billion" equals "$2.1B", and "14 March 2024" equals "2024-03-14".
Values are exact decimals. The time needed is proportional to the length of the text.
"""

from judges.features.numbers.extraction import extract
from judges.features.numbers.number_comparison import (
    QuantityComparison,
    QuantityFinding,
    Relation,
    agree,
    compare_quantities,
    lacking,
    relate,
    within,
)
from judges.features.numbers.quantity import BoundKind, Quantity, QuantityKind
from judges.features.numbers.tokenizer import Token, normalise, scan

__all__ = [
    "BoundKind",
    "Quantity",
    "QuantityComparison",
    "QuantityFinding",
    "QuantityKind",
    "Relation",
    "Token",
    "agree",
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
    """Extract the quantities in ``text``, in order."""
    return extract(scan(normalise(text)))


def compare(claim: str, evidence: str) -> QuantityComparison:
    """Compare each quantity in ``claim`` with ``evidence``. The evidence may agree, differ, or not mention the
    quantity. It differs if it has another value for what is apparently the same thing: a quantity with the same kind,
    unit and counted noun."""
    return compare_quantities(quantities(claim), quantities(evidence))
