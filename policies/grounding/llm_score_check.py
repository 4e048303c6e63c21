"""The check of grounding policies that rests on an LLM's score of the whole reply.

Asking an LLM takes time and policies do not wait: whoever drives the audit asks beforehand and puts the scores into the
inputs. A request that the inputs has no score for was not to be made (a sentence on its way, a replay).
"""

from collections.abc import Iterator
from typing import Any

from judges.types import LlmScore
from policies import formatting as wording
from policies.grounding.rules import GroundingRules
from policies.types import Action, Phase, PolicyInputs, Violation

_ABSENT = frozenset({"no_key", "unknown_model"})
"""There is no LLM to ask: the other checks stand for themselves, and the decision only mentions it."""


def llm_score(rules: GroundingRules, inputs: PolicyInputs, phase: Phase) -> Iterator[Violation]:
    """A score below the threshold; or a warning where the LLM was asked in vain, since that never blocks."""
    score = score_of(rules, inputs, phase)
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
            reason=f"LLM grounding score ({wording.score(score.score)}) below threshold "
            f"({wording.score(rules.llm_grounding_threshold)})",
            reason_code="GROUNDING_LLM_SCORE",
            metadata={
                "score": score.score,
                "threshold": rules.llm_grounding_threshold,
                "model": score.request.model,
                "reasoning": score.reasoning,
            },
        )


def llm_warnings(rules: GroundingRules, inputs: PolicyInputs, phase: Phase) -> tuple[str, ...]:
    """What the decision mentions where there was no LLM to ask."""
    score = score_of(rules, inputs, phase)
    return (_skipped(score),) if score is not None and score.skipped in _ABSENT else ()


def llm_notes(rules: GroundingRules, inputs: PolicyInputs, phase: Phase) -> dict[str, Any]:
    """What the decision says of the LLM whatever came of it: its score, and what the calls took, in the first phase
    that it was asked for."""
    score = score_of(rules, inputs, phase)
    if score is None:
        return {}
    told: dict[str, Any] = {"model": score.request.model, "score": score.score}
    if score.reasoning is not None:
        told["reasoning"] = score.reasoning
    if score.skipped is not None:
        told["skipped"] = score.skipped
    if rules.llm_grounding_phase != "both" or phase is Phase.MID_EXECUTION:
        costs = [call.cost_usd for call in score.calls]
        told |= {
            "calls": len(score.calls),
            "prompt_tokens": sum(call.prompt_tokens for call in score.calls),
            "completion_tokens": sum(call.completion_tokens for call in score.calls),
            "cost_usd": None if None in costs else sum(cost for cost in costs if cost is not None),
            "latency_ms": round(sum(call.latency_ms for call in score.calls), 1),
        }
    return {"llm": told}


def score_of(rules: GroundingRules, inputs: PolicyInputs, phase: Phase) -> LlmScore | None:
    """The score that ``rules`` want at ``phase``, if the inputs has it."""
    request = rules.score_request
    if request is None or not inputs.final or rules.llm_grounding_phase not in (phase.value, "both"):
        return None
    return next((score for score in inputs.llm_scores if score.request == request), None)


def _skipped(score: LlmScore) -> str:
    return f"LLM grounding check skipped: {score.detail or score.skipped}"
