"""How much of a claim's wording stands in the evidence, whatever it says."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from math import log1p
from typing import Final

from judges.signals.prepared import Prepared

_SEPARATOR: Final = "\x1f"


@dataclass(frozen=True, slots=True)
class Wording:
    """Shares are from 0 to 1."""

    content: float = 0.0
    """Share of the claim's content, by weight, that some sentence of the evidence has."""
    sentence: float = 0.0
    """The same of its best sentence."""
    pairs: float = 0.0
    """Share of the claim's pairs of neighbouring words that stand in the evidence so."""
    triples: float = 0.0
    longest: float = 0.0
    """Length of the longest run of the claim's words in the evidence, as a share of the claim."""
    quantities: float = 1.0
    """Share of the claim's numbers and dates that stand in the evidence; 1 without any."""
    names: float = 1.0
    length: float = 0.0
    """Logarithm of the claim's length in words."""
    evidence_length: float = 0.0


def measure_wording(evidence: Prepared, claim: Prepared) -> Wording:
    """Compare the wording of ``claim`` with that of ``evidence``; linear in the claim's length times the evidence's."""
    weights: dict[str, float] = {}
    names: set[str] = set()
    for sentence in claim.sentences:
        weights.update(sentence.weights)
        names.update(sentence.names)
    words = [word for word in claim.run.split(_SEPARATOR) if word]
    if not words or not evidence.sentences:
        return Wording()
    total = sum(weights.values())
    best = 0.0
    if total:
        best = max(_weight(weights, one.weights) for one in evidence.sentences) / total
    keys = {quantity.key for quantity in evidence.quantities}
    asked = [quantity.key for quantity in claim.quantities]
    return Wording(
        content=_weight(weights, evidence.keys) / total if total else 0.0,
        sentence=best,
        pairs=_runs(words, evidence.run, 2),
        triples=_runs(words, evidence.run, 3),
        longest=_longest(words, evidence.run) / len(words),
        quantities=sum(key in keys for key in asked) / len(asked) if asked else 1.0,
        names=sum(name in evidence.keys for name in names) / len(names) if names else 1.0,
        length=log1p(len(words)),
        evidence_length=log1p(evidence.run.count(_SEPARATOR)),
    )


def _weight(weights: Mapping[str, float], keys: Container[str]) -> float:
    return sum(weight for key, weight in weights.items() if key in keys)


def _runs(words: list[str], text: str, size: int) -> float:
    count = len(words) - size + 1
    if count <= 0:
        return _runs(words, text, size - 1) if size > 1 else 0.0
    return sum(_stands(words[start : start + size], text) for start in range(count)) / count


def _longest(words: list[str], text: str) -> int:
    best = start = 0
    for end in range(1, len(words) + 1):
        while start < end and not _stands(words[start:end], text):
            start += 1
        best = max(best, end - start)
    return best


def _stands(words: list[str], text: str) -> bool:
    return f"{_SEPARATOR}{_SEPARATOR.join(words)}{_SEPARATOR}" in text
