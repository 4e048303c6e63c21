"""Defines all thresholds for judging, and is the only module that converts scores to labels.

Scores are probabilities, 0–1. A policy sets ``Thresholds`` and may apply them to verdicts that were reached under other
thresholds. The other limits are internal to the judge.
"""

from dataclasses import dataclass
from typing import Final

from judges.types import ClaimVerdict, Label

CONTRADICTED_BY_CONTEXT: Final = 0.5
"""From this probability of contradiction, a claim isn't judged again without its context."""
CONTRADICTION_MIN_AFFINITY: Final = 0.1
"""A window can contradict a claim only if one of its sentences contains at least this share of the claim's words.
Models often report a contradiction between statements about different things."""

CONTRADICTION_RELATIVE_AFFINITY: Final = 0.8
"""A sentence can contradict a claim only if its share of the claim's words is also at least this fraction of the
largest share that any sentence has. Together with ``CONTRADICTION_MIN_AFFINITY``, this reduces the number of entailed
claims judged contradicted from 34 to 12 (of 122), measured on development rows from eight data sets with
distractors."""

MAX_UNVERIFIABLE_RATIO: Final = 0.5
"""A reply is not trusted if more than this share of its claims is unverifiable."""

EXACT_MATCH_SCORE: Final = 0.95
"""The score of a claim that is decided without a model, because it repeats a sentence of the evidence or because its
number or date differs from the evidence."""

UNREADABLE_SCORE: Final = 0.5
"""The score of a claim or reply for which the LLM's answer could not be parsed."""

LLM_MIN_CONFIDENCE: Final = 0.5
"""An LLM verdict with a confidence below this counts as unverifiable."""

INCONSISTENCY_MIN_SCORE: Final = 0.5
"""Two statements contradict each other if the probability is at least this high."""

DEFINITE_INCONSISTENCY_SCORE: Final = 0.9
"""The minimum score of a contradiction that follows from words and numbers alone. A small model may miss such a
contradiction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """A claim is contradicted if P(contradicted) is at least ``contradiction`` and above P(entailed). Otherwise, it is
    supported if P(entailed) is at least ``entailment``, and unverifiable if not."""

    entailment: float = 0.7
    contradiction: float = 0.7

    def label(self, entailed: float, contradicted: float) -> Label:
        """Return the label for a pair of probabilities, 0–1."""
        if contradicted >= self.contradiction and contradicted > entailed:
            return Label.CONTRADICTED
        if entailed >= self.entailment:
            return Label.SUPPORTED
        return Label.UNVERIFIABLE

    def label_of(self, verdict: ClaimVerdict) -> Label:
        """Return the label of ``verdict`` under these thresholds, regardless of the thresholds it was judged with. LLM
        verdicts, unjudged claims and sentences without claims keep their label.
        """
        if verdict.label is Label.NOT_A_CLAIM or verdict.reason is not None or verdict.escalated:
            return verdict.label
        return self.label(verdict.entailed, verdict.contradicted)

    def accept_correction(self, verdict: ClaimVerdict) -> bool:
        """Return whether ``verdict`` has no correction, or the documents support the corrected sentence. A correction
        that wasn't judged doesn't count as supported."""
        if verdict.correction is None:
            return True
        return bool(verdict.corrected) and all(self.label_of(each) is Label.SUPPORTED for each in verdict.corrected)
