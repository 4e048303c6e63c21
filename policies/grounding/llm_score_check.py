"""Checks whether an LLM's score of the whole reply is too low.

Policies do no I/O: the caller requests the scores beforehand and passes them in the inputs. A score missing from the
inputs was not requested (for a single sentence, or in a replay).
"""

from collections.abc import Iterator
from typing import Any

from judges.types import LlmScore
from policies import number_format
from policies.grounding.rules import GroundingRules
from policies.types import Action, Phase, PolicyInputs, Violation

_ABSENT = frozenset({"no_key", "unknown_model"})
"""The reasons that mean that no LLM is configured. The other checks then decide, and the decision only mentions it."""


def check_llm_score(rules: GroundingRules, inputs: PolicyInputs, phase: Phase) -> Iterator[Violation]:
    """Check that the score reaches the threshold. If the LLM request failed, this adds a warning and never blocks."""
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
    if score.score is not None and score.score < rules.llm_grounding_threshold:
        yield Violation(
            action=Action(rules.action_on_violation),
            reason=f"LLM grounding score ({number_format.score(score.score)}) below threshold "
            f"({number_format.score(rules.llm_grounding_threshold)})",
            reason_code="GROUNDING_LLM_SCORE",
            metadata={
                "score": score.score,
                "threshold": rules.llm_grounding_threshold,
                "model": score.request.model,
                "reasoning": score.reasoning,
            },
        )


def llm_warnings(rules: GroundingRules, inputs: PolicyInputs, phase: Phase) -> tuple[str, ...]:
    """Return the warnings that the decision includes if no LLM is configured."""
    score = _score_for(rules, inputs, phase)
    return (_skipped(score),) if score is not None and score.skipped in _ABSENT else ()


def llm_notes(rules: GroundingRules, inputs: PolicyInputs, phase: Phase) -> dict[str, Any]:
    """Return metadata about the LLM: its score and, in the first phase that uses it, the number, tokens, cost and time
    of its calls."""
    score = _score_for(rules, inputs, phase)
    if score is None:
        return {}
    notes: dict[str, Any] = {"model": score.request.model, "score": score.score}
    if score.reasoning is not None:
        notes["reasoning"] = score.reasoning
    if score.skipped is not None:
        notes["skipped"] = score.skipped
    if rules.llm_grounding_phase != "both" or phase is Phase.MID_EXECUTION:
        costs = [call.cost_usd for call in score.calls]
        notes |= {
            "calls": len(score.calls),
            "prompt_tokens": sum(call.prompt_tokens for call in score.calls),
            "completion_tokens": sum(call.completion_tokens for call in score.calls),
            "cost_usd": None if None in costs else sum(cost for cost in costs if cost is not None),
            "latency_ms": round(sum(call.latency_ms for call in score.calls), 1),
        }
    return {"llm": notes}


def _score_for(rules: GroundingRules, inputs: PolicyInputs, phase: Phase) -> LlmScore | None:
    """Return the score that ``rules`` need at ``phase``, or None if the inputs don't have it."""
    request = rules.score_request
    if request is None or not inputs.final or rules.llm_grounding_phase not in (phase.value, "both"):
        return None
    return next((score for score in inputs.llm_scores if score.request == request), None)


def _skipped(score: LlmScore) -> str:
    return f"LLM grounding check skipped: {score.detail or score.skipped}"
