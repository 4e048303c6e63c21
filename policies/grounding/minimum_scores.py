"""Checks whether the grounding scores, the confidence in the reply, or an LLM's score for the whole reply are too low.

For grounding scores, the relevance floor is applied first, then ``all``, ``average`` or ``top_n``. Policies do no I/O,
so the caller requests LLM scores first and passes them in the inputs. If an LLM score is missing from the inputs, it
was not requested (as for a single sentence, or in a replay).
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Literal

from msgspec import Struct

from judges.llm_types import LlmScore
from judges.types import ClaimVerdict, Label, QuestionPart
from policies import reason_texts
from policies.grounding.rules import GroundingRules
from policies.types import Action, Phase, PolicyInputs, Violation

ScoreMode = Literal["all", "average", "top_n"]
NONE_ABOVE_FLOOR = "No grounding scores above relevance floor — all retrieved results appear irrelevant"


def scores_of(rules: GroundingRules, inputs: PolicyInputs) -> list[float]:
    """Return the scores to check, from the source named in ``score_source``."""
    if rules.score_source == "retrieval":
        scored = () if inputs.of_sentence else inputs.chunks
        return [chunk.relevance_score for chunk in scored if chunk.relevance_score is not None]
    if rules.score_source == "reported" or not inputs.judged:
        return list(inputs.reported_scores)
    return [claim.score for claim in inputs.claims if _counts(rules, inputs, claim)]


def _counts(rules: GroundingRules, inputs: PolicyInputs, claim: ClaimVerdict) -> bool:
    """Return whether the claim's score counts. It counts if the claim has a verdict and is neither left out of the
    reply nor replaced."""
    if claim.label is Label.NOT_A_CLAIM or claim.reason is not None:
        return False
    replaceable = inputs.strippable
    return not rules.is_stripped(claim, replaceable=replaceable) and not rules.is_corrected(
        claim, replaceable=replaceable
    )


def check_scores(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Check that the scores reach ``min_grounding_score``, as required by ``score_eval_mode``. The floor never applies
    to the judge's scores, because it would let the least supported claims pass."""
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


class LowScore(Struct, frozen=True, kw_only=True):
    """The reason why the scores don't pass."""

    reason: str
    reason_code: str
    metadata: dict[str, Any]


class ScoreCheck(Struct, frozen=True, kw_only=True):
    """A check on scores. ``threshold`` and ``floor`` are from 0 to 1; an equal score passes. ``top_n`` applies only to
    the mode of that name."""

    threshold: float
    floor: float | None = None
    mode: ScoreMode = "all"
    top_n: int = 3

    def check(self, scores: Sequence[float], *, complete: bool) -> LowScore | None:
        """Check ``scores`` in order. Return the first reason why they don't pass, or None. ``average``, ``top_n`` and
        "none above the floor" are checked only once the scores are ``complete``."""
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
                    reason=f"Grounding score ({reason_texts.score_beside(score, self.threshold)}) below threshold "
                    f"({reason_texts.number(self.threshold)})",
                    reason_code="GROUNDING_LOW_SCORE",
                    metadata={"score": score, "threshold": self.threshold},
                )
        return None

    def _average(self, scores: Sequence[float]) -> LowScore | None:
        # Decimal arithmetic is used, because in binary floating point, the mean of 0.7, 0.7 and 0.7 is below 0.7.
        mean = sum((_decimal(score) for score in scores), Decimal()) / len(scores)
        if mean >= _decimal(self.threshold):
            return None
        return LowScore(
            reason=f"Average grounding score ({reason_texts.score_beside(float(mean), self.threshold)}) below "
            f"threshold ({reason_texts.number(self.threshold)})",
            reason_code="GROUNDING_LOW_SCORE",
            metadata={"score": float(mean), "threshold": self.threshold, "mode": "average"},
        )


def _decimal(value: float) -> Decimal:
    return Decimal(repr(float(value)))


def check_confidence(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Check that the reported confidence (or, without one, the trust score) is at least ``abstention_threshold``."""
    confidence = inputs.trust_score if inputs.output_confidence is None else inputs.output_confidence
    threshold = rules.abstention_threshold
    if confidence is not None and threshold is not None and confidence < threshold:
        yield Violation(
            action=Action(rules.action_on_violation),
            reason=f"Output confidence ({reason_texts.score_beside(confidence, threshold)}) below abstention "
            f"threshold ({reason_texts.number(threshold)})",
            reason_code="GROUNDING_ABSTAIN",
            metadata={"output_confidence": confidence, "threshold": threshold},
        )


def check_answer_relevance(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Check that the claims are about the question. Replies without claims aren't checked."""
    relevance, minimum = inputs.answer_relevance, rules.min_answer_relevance
    if relevance is not None and minimum is not None and relevance < minimum:
        yield Violation(
            action=Action(rules.action_on_violation),
            reason=f"Answer relevance ({reason_texts.score_beside(relevance, minimum)}) below minimum "
            f"({reason_texts.number(minimum)})",
            reason_code="GROUNDING_OFF_TOPIC",
            metadata={"score": relevance, "threshold": minimum},
        )


def answer_notes(rules: GroundingRules, inputs: PolicyInputs) -> dict[str, Any]:
    """Return metadata about how the reply answers the question."""
    notes: dict[str, Any] = {}
    if rules.min_answer_relevance is not None and inputs.answer_relevance is not None:
        notes["answer_relevance"] = inputs.answer_relevance
    if rules.report_completeness and inputs.question_parts is not None:
        notes["completeness"] = completeness_of(inputs.question_parts)
    return notes


def completeness_of(parts: Sequence[QuestionPart]) -> dict[str, Any]:
    """Return, as JSON, how many parts of a question the documents answer, how many of these parts the reply answers,
    and the parts that it doesn't answer."""
    answerable = [part for part in parts if part.in_documents]
    open_ones = [part.text for part in answerable if not part.in_reply]
    return {"parts": len(answerable), "answered": len(answerable) - len(open_ones), "unanswered": open_ones}


_ABSENT = frozenset({"no_key", "unknown_model", "no_reply"})
"""Reasons for a missing score that are not failures: no LLM is configured, or there is nothing to score yet. The other
checks then decide, and the decision only mentions the reason.
"""


def check_llm_score(rules: GroundingRules, inputs: PolicyInputs, phase: Phase) -> Iterator[Violation]:
    """Check that the LLM's score reaches the threshold. If the LLM request failed, this adds a warning and never
    blocks."""
    score = _score_for(rules, inputs, phase)
    if score is None:
        return
    if score.skipped is not None and score.skipped not in _ABSENT:
        yield Violation(
            action=Action.WARN,
            reason=_skipped(score),
            reason_code="GROUNDING_LLM_SKIPPED",
            metadata={"model": score.request.model, "skipped": score.skipped},
        )
    threshold = rules.llm_grounding_threshold
    if score.score is not None and score.score < threshold:
        yield Violation(
            action=Action(rules.action_on_violation),
            reason=f"LLM grounding score ({reason_texts.score_beside(score.score, threshold)}) below threshold "
            f"({reason_texts.threshold(threshold)})",
            reason_code="GROUNDING_LLM_SCORE",
            metadata={
                "score": score.score,
                "threshold": threshold,
                "model": score.request.model,
                "reasoning": score.reasoning,
            },
        )


def unused_scores(rules: GroundingRules, inputs: PolicyInputs) -> dict[str, Any]:
    """Return metadata about the scores that the caller reported but that aren't checked, because ``score_source``
    selects others."""
    unused = len(inputs.reported_scores)
    if not unused or rules.score_source == "reported" or (rules.score_source == "judge" and not inputs.judged):
        return {}
    return {"score_source": rules.score_source, "reported_scores_unused": unused}


def llm_notes(rules: GroundingRules, inputs: PolicyInputs, phase: Phase) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return metadata about the LLM, and the warnings to include in the decision if no LLM is configured. The metadata
    has the LLM's score and, in the first phase that uses the score, the number, tokens, cost and duration of the
    calls."""
    score = _score_for(rules, inputs, phase)
    if score is None:
        return {}, ()
    notes: dict[str, Any] = {"model": score.request.model, "score": score.score}
    if score.reasoning is not None:
        notes["reasoning"] = score.reasoning
    if score.skipped is not None:
        notes["skipped"] = score.skipped
    if rules.llm_grounding_phase != "both" or phase is Phase.MID_EXECUTION or inputs.of_run:
        costs = [call.cost_usd for call in score.calls]
        notes |= {
            "calls": len(score.calls),
            "prompt_tokens": sum(call.prompt_tokens for call in score.calls),
            "completion_tokens": sum(call.completion_tokens for call in score.calls),
            "cost_usd": None if None in costs else sum(cost for cost in costs if cost is not None),
            "latency_ms": round(sum(call.latency_ms for call in score.calls), 1),
        }
    return {"llm": notes}, (_skipped(score),) if score.skipped in _ABSENT else ()


def _score_for(rules: GroundingRules, inputs: PolicyInputs, phase: Phase) -> LlmScore | None:
    """Return the score that ``rules`` need at ``phase``, or None if the inputs don't have it."""
    request = rules.score_request
    if request is None or not (inputs.final or inputs.of_run):
        return None
    # A run's caller provides a result to score only when the run is complete, regardless of the phase.
    complete = inputs.of_run and phase is Phase.AFTER_WORKFLOW
    if not complete and rules.llm_grounding_phase not in (phase.value, "both"):
        return None
    return next((score for score in inputs.llm_scores if score.request == request), None)


def _skipped(score: LlmScore) -> str:
    return f"LLM grounding check skipped: {score.detail or score.skipped}"
