"""Measures how much of a claim's wording is in the evidence, regardless of meaning."""

from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from judges.features.alignment import held
from judges.features.parsed_text import SEPARATOR, Prepared


class Wording(Struct, frozen=True):
    """Shares of a claim's wording, from 0 to 1."""

    content: float = 0.0
    """The weighted share of the claim's content found in any sentence of the evidence."""
    sentence: float = 0.0
    """The weighted share of the claim's content found in the best sentence."""
    pairs: float = 0.0
    """The share of the claim's pairs of neighbouring words that are also neighbours in the evidence."""


def measure_wording(evidence: Prepared, claim: Prepared) -> Wording:
    """Compare the wording of ``claim`` with that of ``evidence``; linear in the claim's length times the evidence's."""
    if not claim.sentences or not evidence.sentences:
        return Wording()
    weights = claim.sentences[0].weights
    if len(claim.sentences) > 1:
        weights = {key: weight for sentence in claim.sentences for key, weight in sentence.weights.items()}
    total = sum(weights.values())
    return Wording(
        content=held(weights, evidence.keys) / total if total else 0.0,
        sentence=max(held(weights, one.weights) for one in evidence.sentences) / total if total else 0.0,
        pairs=share_of_runs(claim, evidence, 2),
    )


def words_of(text: Prepared) -> list[str]:
    """Return the words of a text in order, with normalized forms."""
    return [word for word in text.run.split(SEPARATOR) if word]


def share_of_runs(claim: Prepared, evidence: Prepared, size: int) -> float:
    """Return the share of the claim's runs of ``size`` words that the evidence contains. A claim with fewer words is
    treated as shorter runs."""
    runs = _runs_of(claim.run, size)
    return sum(map(evidence.run.__contains__, runs)) / len(runs) if runs else 0.0


@lru_cache(maxsize=512)
def _runs_of(text: str, size: int) -> tuple[str, ...]:
    """Return the runs of words in searchable form. Cached, because a claim is compared with several pieces of
    evidence."""
    words = [word for word in text.split(SEPARATOR) if word]
    size = min(size, len(words))
    return tuple(_joined(words[start : start + size]) for start in range(len(words) - size + 1)) if size else ()


def stands(words: Sequence[str], evidence: Prepared) -> bool:
    """Whether the evidence contains the words consecutively."""
    return _joined(words) in evidence.run


def _joined(words: Sequence[str]) -> str:
    return f"{SEPARATOR}{SEPARATOR.join(words)}{SEPARATOR}"
