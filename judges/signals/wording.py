"""How much of a claim's wording stands in the evidence, whatever it says."""

from collections.abc import Container, Mapping, Sequence
from typing import Final

from msgspec import Struct

from judges.signals.prepared import Prepared

_SEPARATOR: Final = "\x1f"


class Wording(Struct, frozen=True):
    """Shares of a claim, from 0 to 1."""

    content: float = 0.0
    """Of its content, by weight, that some sentence of the evidence has."""
    sentence: float = 0.0
    """The same of its best sentence."""
    pairs: float = 0.0
    """Of its pairs of neighbouring words that stand in the evidence so."""


def measure_wording(evidence: Prepared, claim: Prepared) -> Wording:
    """Compare the wording of ``claim`` with that of ``evidence``; linear in the claim's length times the evidence's."""
    words = words_of(claim)
    if not words or not evidence.sentences:
        return Wording()
    weights = {key: weight for sentence in claim.sentences for key, weight in sentence.weights.items()}
    total = sum(weights.values())
    return Wording(
        content=_weight(weights, evidence.keys) / total if total else 0.0,
        sentence=max(_weight(weights, one.weights) for one in evidence.sentences) / total if total else 0.0,
        pairs=share_of_runs(words, evidence, 2),
    )


def words_of(text: Prepared) -> list[str]:
    """Its words in order, forms normalised."""
    return [word for word in text.run.split(_SEPARATOR) if word]


def share_of_runs(words: Sequence[str], evidence: Prepared, size: int) -> float:
    """The share of runs of ``size`` of the words that stand in the evidence; shorter runs where there are too few
    words."""
    size = min(size, len(words))
    starts = range(len(words) - size + 1)
    return sum(stands(words[start : start + size], evidence) for start in starts) / len(starts) if size else 0.0


def stands(words: Sequence[str], evidence: Prepared) -> bool:
    """Whether the words stand in the evidence, one after another."""
    return f"{_SEPARATOR}{_SEPARATOR.join(words)}{_SEPARATOR}" in evidence.run


def _weight(weights: Mapping[str, float], keys: Container[str]) -> float:
    return sum(weight for key, weight in weights.items() if key in keys)
