"""Checks whether the grounding scores, or the confidence in the reply, are too low.

For scores, the relevance floor is applied first, then ``all``, ``average`` or ``top_n``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from judges.types import ClaimVerdict, Label
from policies import number_format
from policies.grounding.claim_actions import is_corrected, is_stripped
from policies.grounding.rules import GroundingRules
from policies.types import Action, PolicyInputs, Violation

ScoreMode = Literal["all", "average", "top_n"]
NONE_ABOVE_FLOOR = "No grounding scores above relevance floor — all retrieved results appear irrelevant"


def scores_of(rules: GroundingRules, inputs: PolicyInputs) -> list[float]:
    """Return the scores to check, from the source named in ``score_source``."""
    if rules.score_source == "retrieval":
        return [chunk.relevance_score for chunk in inputs.chunks if chunk.relevance_score is not None]
    if rules.score_source == "reported" or not inputs.judged:
        return list(inputs.reported_scores)
    return [claim.score for claim in inputs.claims if _counts(rules, inputs, claim)]


def _counts(rules: GroundingRules, inputs: PolicyInputs, claim: ClaimVerdict) -> bool:
    """Whether the claim's score counts: it has a verdict, and is not left out of the reply or replaced."""
    if claim.label is Label.NOT_A_CLAIM or claim.reason is not None:
        return False
    replaceable = inputs.strippable
    return not is_stripped(rules, claim, replaceable=replaceable) and not is_corrected(
        rules, claim, replaceable=replaceable
    )


def check_scores(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Check that the scores reach ``min_grounding_score`` according to ``score_eval_mode``. The floor never applies to
    the judge's scores, because it would let the least supported claims pass."""
    from_judge = rules.score_source == "judge" and inputs.judged
    check = ScoreCheck(
        threshold=rules.min_grounding_score,
        floor=None if from_judge else rules.score_relevance_floor,
        mode=rules.score_eval_mode,
        top_n=rules.score_top_n,
    )
    if low := check.check(scores_of(rules, inputs), complete=inputs.final or not from_judge):
        yield Violation(
            action=Action(rules.action_on_violation),
            reason=low.reason,
            reason_code=low.reason_code,
            metadata=low.metadata,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LowScore:
    """The reason why scores do not pass."""

    reason: str
    reason_code: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCheck:
    """A check on scores. ``threshold`` and ``floor`` are 0 to 1; an equal score passes. ``top_n`` applies only to that
    mode."""

    threshold: float
    floor: float | None = None
    mode: ScoreMode = "all"
    top_n: int = 3

    def check(self, scores: Sequence[float], *, complete: bool) -> LowScore | None:
        """Return the first reason why ``scores``, in order, do not pass, or None. ``average``, ``top_n`` and "none
        above the floor" are checked only once the scores are ``complete``."""
        relevant = [score for score in scores if self.floor is None or score >= self.floor]
        if complete and scores and not relevant:
            return LowScore(
                reason=NONE_ABOVE_FLOOR,
                reason_code="GROUNDING_IRRELEVANT",
                metadata={"floor": self.floor, "scores": list(scores)},
            )
        match self.mode:
            case "all":
                return self._each(relevant)
            case "top_n" if complete:
                return self._each(sorted(relevant, reverse=True)[: self.top_n])
            case "average" if complete and relevant:
                return self._average(relevant)
        return None

    def _each(self, scores: Sequence[float]) -> LowScore | None:
        for score in scores:
            if score < self.threshold:
                return LowScore(
                    reason=f"Grounding score ({number_format.score(score)}) below threshold "
                    f"({number_format.number(self.threshold)})",
                    reason_code="GROUNDING_LOW_SCORE",
                    metadata={"score": score, "threshold": self.threshold},
                )
        return None

    def _average(self, scores: Sequence[float]) -> LowScore | None:
        # In decimal, because in binary the mean of three values of 0.7 is below 0.7.
        mean = sum((_decimal(score) for score in scores), Decimal()) / len(scores)
        if mean >= _decimal(self.threshold):
            return None
        return LowScore(
            reason=f"Average grounding score ({number_format.score(float(mean))}) below threshold "
            f"({number_format.number(self.threshold)})",
            reason_code="GROUNDING_LOW_SCORE",
            metadata={"score": float(mean), "threshold": self.threshold, "mode": "average"},
        )


def _decimal(value: float) -> Decimal:
    return Decimal(repr(float(value)))


def check_confidence(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Check that the reported confidence, or else the trust score, is at least ``abstention_threshold``."""
    confidence = inputs.trust_score if inputs.output_confidence is None else inputs.output_confidence
    threshold = rules.abstention_threshold
    if confidence is not None and threshold is not None and confidence < threshold:
        yield Violation(
            action=Action(rules.action_on_violation),
            reason=f"Output confidence ({number_format.score(confidence)}) below abstention threshold "
            f"({number_format.number(threshold)})",
            reason_code="GROUNDING_ABSTAIN",
            metadata={"output_confidence": confidence, "threshold": threshold},
        )
