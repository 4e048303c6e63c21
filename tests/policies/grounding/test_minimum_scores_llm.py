"""The rules of the LLM judge: its score in the inputs, the resulting decision, and the effect of a missing score."""

from typing import Any

import pytest

from judges.llm_types import LlmCall, LlmScore, ScoreRequest
from policies.policy_selection import PolicyEngine
from policies.registry import parse_rules
from policies.types import Action, Citation, Decision, Phase, Policy, PolicyInputs
from tests.support.policy_builders import chunk, claim

MODEL = "gpt-4o-mini"
REQUEST = ScoreRequest(model=MODEL)
CALL = LlmCall(
    mode="score", model=MODEL, outcome="ok", prompt_tokens=500, completion_tokens=10, cost_usd=0.0001, latency_ms=210.04
)
CITED = (Citation(marker="[1]", document_index=0, sentence_index=0),)
PHASES = [Phase.MID_EXECUTION, Phase.AFTER_WORKFLOW]


def decided(score: LlmScore | None, **rules: Any) -> dict[Phase, Decision]:
    """The decisions on a reply without any other violation."""
    made = parse_rules("grounding", {"llm_grounding_check": True, **rules})
    evaluation = (
        PolicyEngine([Policy(id="p", name="p", category="grounding", rules=made)])
        .in_scope()
        .evaluate_reply(PolicyInputs())
    )
    evaluation.start()
    inputs = PolicyInputs(
        chunks=(chunk(0, source="faq.pdf"),),
        citations=CITED,
        claims=[claim(0.9)],
        llm_scores=() if score is None else (score,),
    )
    evaluation.finish(inputs)
    return {decision.phase: decision for decision in evaluation.decisions}


def scored(value: float, request: ScoreRequest = REQUEST) -> LlmScore:
    return LlmScore(request=request, score=value, reasoning="Two facts stand in no source.", calls=(CALL,))


@pytest.mark.parametrize("action", ["warn", "block"])
def test_low_score_is_a_violation(action: str) -> None:
    decision = decided(scored(0.3), action_on_violation=action)[Phase.MID_EXECUTION]
    assert decision.action == action
    assert decision.reason == "LLM grounding score (0.30) below threshold (0.70)"
    assert decision.reason_code == "GROUNDING_LLM_SCORE"
    assert decision.metadata["score"] == 0.3
    assert decision.metadata["model"] == MODEL
    assert decision.metadata["reasoning"] == "Two facts stand in no source."


def test_score_equal_to_the_threshold_passes_and_is_recorded_with_its_cost() -> None:
    decision = decided(scored(0.7))[Phase.MID_EXECUTION]
    assert decision.action is Action.ALLOW
    assert decision.metadata["llm"] == {
        "model": MODEL,
        "score": 0.7,
        "reasoning": "Two facts stand in no source.",
        "calls": 1,
        "prompt_tokens": 500,
        "completion_tokens": 10,
        "cost_usd": 0.0001,
        "latency_ms": 210.0,
    }


@pytest.mark.parametrize(
    ("phase", "warned"),
    [("mid_execution", PHASES[:1]), ("after_workflow", PHASES[1:]), ("both", PHASES)],
)
def test_score_counts_in_the_phase_of_the_rule(phase: str, warned: list[Phase]) -> None:
    decisions = decided(scored(0.1), llm_grounding_phase=phase)
    assert [p for p in PHASES if decisions[p].reason_code == "GROUNDING_LLM_SCORE"] == warned
    assert [p for p in PHASES if "llm" in decisions[p].metadata] == warned
    assert [p for p in PHASES if "cost_usd" in decisions[p].metadata.get("llm", {})] == warned[:1]


@pytest.mark.parametrize("skipped", ["timeout", "error", "overloaded"])
def test_llm_errors_warn_and_never_block(skipped: str) -> None:
    score = LlmScore(request=REQUEST, skipped=skipped, detail="openai: HTTP 503" if skipped == "error" else None)
    decision = decided(score, action_on_violation="block")[Phase.MID_EXECUTION]
    assert decision.action is Action.WARN
    assert decision.reason_code == "GROUNDING_LLM_SKIPPED"
    why = "openai: HTTP 503" if skipped == "error" else skipped
    assert decision.reason == f"LLM grounding check skipped: {why}"
    assert decision.metadata["llm"]["skipped"] == skipped


@pytest.mark.parametrize("skipped", ["no_key", "unknown_model"])
def test_missing_llm_is_mentioned_and_other_checks_apply(skipped: str) -> None:
    score = LlmScore(request=REQUEST, skipped=skipped, detail="no API key is configured for openai")
    decision = decided(score)[Phase.MID_EXECUTION]
    assert decision.action is Action.ALLOW
    assert decision.metadata["warnings"] == ["LLM grounding check skipped: no API key is configured for openai"]


def test_mention_is_added_to_other_violations() -> None:
    score = LlmScore(request=REQUEST, skipped="no_key")
    decision = decided(score, min_citations=2, llm_grounding_phase="after_workflow")[Phase.AFTER_WORKFLOW]
    assert decision.reason_code == "GROUNDING_CITATIONS"
    assert decision.metadata["warnings"] == [
        "Citations (1) below minimum (2)",
        "LLM grounding check skipped: no_key",
    ]


def test_first_of_several_violations_gives_the_code() -> None:
    decision = decided(scored(0.2), min_citations=2, llm_grounding_phase="after_workflow")[Phase.AFTER_WORKFLOW]
    assert decision.reason == "Citations (1) below minimum (2); LLM grounding score (0.20) below threshold (0.70)"
    assert decision.reason_code == "GROUNDING_CITATIONS"


def test_unrequested_score_is_not_judged() -> None:
    for decision in decided(None).values():
        assert decision.action is Action.ALLOW
        assert "llm" not in decision.metadata


def test_each_policy_reads_the_score_that_it_requested() -> None:
    other = ScoreRequest(model="claude-haiku-4-5", criteria="Name doses with their unit.")
    rules = {"llm_grounding_model": other.model, "llm_grounding_criteria": other.criteria}
    assert decided(scored(0.1), **rules)[Phase.MID_EXECUTION].action is Action.ALLOW
    assert decided(scored(0.1, other), **rules)[Phase.MID_EXECUTION].action is Action.WARN


def test_unknown_cost_stays_unknown() -> None:
    free = LlmCall(mode="score", model="local/m", outcome="ok")
    score = LlmScore(request=REQUEST, score=1.0, calls=(CALL, free))
    assert decided(score)[Phase.MID_EXECUTION].metadata["llm"]["cost_usd"] is None


def test_reply_without_a_cross_encoder_is_decided_by_its_score() -> None:
    rules = {"llm_grounding_check": True, "llm_grounding_phase": "after_workflow", "min_citations": 0}
    made = parse_rules("grounding", rules)
    evaluation = (
        PolicyEngine([Policy(id="p", name="p", category="grounding", rules=made)])
        .in_scope()
        .evaluate_reply(PolicyInputs())
    )
    evaluation.start()
    evaluation.finish(PolicyInputs(chunks=(chunk(0),), judged=False, llm_scores=[scored(0.1)]))
    assert [decision.reason_code for decision in evaluation.decisions] == [None, None, "GROUNDING_LLM_SCORE"]
