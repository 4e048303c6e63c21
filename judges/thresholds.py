"""Every threshold of judging, and the one place where scores become labels.

Scores are probabilities, 0–1. A policy sets ``Thresholds`` and may apply them again to a verdict that was reached under
others; the other limits are the judge's own.
"""

from dataclasses import dataclass
from typing import Final

from judges.types import ClaimVerdict, Label

CONTRADICTION_MIN_AFFINITY: Final = 0.1
"""A window can contradict a claim only if one of its sentences shares this fraction of the claim's words: given two
statements about different things, a model often calls the one a contradiction of the other."""

CONTRADICTION_RELATIVE_AFFINITY: Final = 0.8
"""It must also come this close to the highest fraction found. The two conditions together halve the entailed claims
that are called contradicted (from 34 to 12 of 122) on development rows of eight data sets, each among distractors."""

MAX_UNVERIFIABLE_RATIO: Final = 0.5
"""A reply with a larger share of unverifiable claims is not trusted."""

EXACT_MATCH_SCORE: Final = 0.95
"""The score of a claim that is decided without a model: its words are a sentence of the evidence, or its number or
date differs from the evidence."""

UNREADABLE_SCORE: Final = 0.5
"""The score of a claim or reply for which the LLM's answer could not be parsed."""

LLM_MIN_CONFIDENCE: Final = 0.5
"""An LLM verdict with less confidence counts as unverifiable."""

INCONSISTENCY_MIN_SCORE: Final = 0.5
"""Two statements contradict each other from this probability on."""

DEFINITE_INCONSISTENCY_SCORE: Final = 0.9
"""The lowest score of two statements whose words and numbers alone contradict each other, which a small model may
miss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """A claim is contradicted if P(contradicted) is at least ``contradiction`` and above P(entailed); otherwise it is
    supported if P(entailed) is at least ``entailment``; otherwise it is unverifiable."""

    entailment: float = 0.7
    contradiction: float = 0.7

    def label(self, entailed: float, contradicted: float) -> Label:
        """The label for a pair of probabilities, 0–1."""
        if contradicted >= self.contradiction and contradicted > entailed:
            return Label.CONTRADICTED
        if entailed >= self.entailment:
            return Label.SUPPORTED
        return Label.UNVERIFIABLE

    def label_of(self, verdict: ClaimVerdict) -> Label:
        """The label of ``verdict`` under these thresholds, whichever it was judged with. A verdict of an LLM, one
        without a judgement, and a sentence that makes no claim keep their label."""
        if verdict.label is Label.NOT_A_CLAIM or verdict.reason is not None or verdict.escalated:
            return verdict.label
        return self.label(verdict.entailed, verdict.contradicted)
