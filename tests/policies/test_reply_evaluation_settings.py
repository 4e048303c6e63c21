"""The combined settings of several grounding policies."""

from dataclasses import replace
from typing import Any

import pytest

from judges.label_thresholds import Thresholds
from judges.llm_types import ScoreRequest
from policies.policy_selection import PolicySet
from policies.reply_evaluation import ReplySettings
from tests.support.policy_builders import policy

MODEL = "gpt-4o-mini"


def settings(*rules: dict[str, Any]) -> ReplySettings:
    """``rules`` of several policies, the highest priority first."""
    return PolicySet(tuple(policy("grounding", f"p{n}", **each) for n, each in enumerate(rules))).reply_settings


def test_combined_settings_take_the_first_most_generous_or_strictest_policy() -> None:
    both = settings(
        {"entailment_threshold": 0.8, "stream_mode": "live", "max_claims": 5},
        {"contradiction_threshold": 0.9, "stream_mode": "hold", "max_sources_per_claim": 9, "max_claims": 7},
    )
    assert both.judging.thresholds == Thresholds(entailment=0.8, contradiction=0.7)
    assert both.judging.max_sources == 9
    assert both.judging.max_claims == 7
    assert both.stream_mode == "hold"
    assert settings({"max_claims": 5}, {}).judging.max_claims is None
    assert settings({"stream_mode": "live"}).stream_mode == "live"
    assert settings({"stream_mode": "live"}, {"stream_mode": "final"}).stream_mode == "final"
    assert settings({"max_regenerations": 1}, {"max_regenerations": 3}).max_regenerations == 3


def test_defaults_apply_without_a_policy() -> None:
    """The defaults equal those of a grounding policy, except that nothing has to be checked."""
    none, usual = settings(), settings({})
    assert PolicySet((policy("retrieval"),)).reply_settings == none
    assert replace(usual, needs=(), wants_citations=False) == none


def test_each_llm_score_is_requested_once() -> None:
    several = settings(
        {"llm_grounding_check": True},
        {"llm_grounding_check": True, "llm_grounding_threshold": 0.2},
        {"llm_grounding_check": True, "llm_grounding_criteria": "Doses."},
        {"contradiction_action": "correct"},
    )
    assert several.score_requests == (ScoreRequest(model=MODEL), ScoreRequest(model=MODEL, criteria="Doses."))
    assert settings({}).score_requests == ()


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("corrects", {"contradiction_action": "correct"}),
        ("evidence_from_tools", {"evidence_from_tools": True}),
        ("consistency_check", {"factual_consistency_check": True}),
        ("valid_citations", {"require_valid_citations": True}),
        ("withholds_unjudged", {"unjudged_action": "strip"}),
        ("withholds_unjudged", {"unjudged_action": "block"}),
        ("reads_standings", {"unjudged_action": "block"}),
        ("reads_standings", {"min_coverage": 0.5}),
    ],
)
def test_single_policy_suffices(name: str, rules: dict[str, Any]) -> None:
    assert getattr(settings({}, rules), name)
    assert not getattr(settings({}, {}), name)


@pytest.mark.parametrize(
    ("name", "rules", "strictest"),
    [
        ("reasoning_action", [{}, {}], "pass"),
        ("reasoning_action", [{"reasoning_action": "judge"}, {}], "judge"),
        ("reasoning_action", [{"reasoning_action": "judge"}, {"unjudged_action": "block"}], "drop"),
        ("tool_call_action", [{}, {}], "pass"),
        ("tool_call_action", [{}, {"tool_call_action": "hold"}], "hold"),
        ("tool_call_action", [{"tool_call_action": "drop"}, {"tool_call_action": "hold"}], "drop"),
    ],
)
def test_strictest_action_wins(name: str, rules: list[dict[str, Any]], strictest: str) -> None:
    assert getattr(settings(*rules), name) == strictest


NO_CITATIONS: dict[str, Any] = {"min_citations": 0}
BLOCK: dict[str, Any] = {**NO_CITATIONS, "action_on_violation": "block"}
WHOLE_REPLY_RULES = {
    "min_citations": {"min_citations": 1, "action_on_violation": "block"},
    "require_source_grounding": {**BLOCK, "require_source_grounding": True},
    "max_unsupported_claims": {**BLOCK, "max_unsupported_claims": 0},
    "max_unverifiable_ratio": {**NO_CITATIONS, "unverifiable_action": "block"},
    "min_coverage": {**BLOCK, "min_coverage": 0.9},
    "factual_consistency_check": {**BLOCK, "factual_consistency_check": True},
    "abstention_threshold": {**BLOCK, "abstention_threshold": 0.5},
    "llm_grounding_check": {**BLOCK, "llm_grounding_check": True},
    "require_valid_citations": {**BLOCK, "require_valid_citations": True},
    "score_eval_mode": {**BLOCK, "score_eval_mode": "average"},
}


class TestHoldToTheEnd:
    @pytest.mark.parametrize("name", WHOLE_REPLY_RULES)
    def test_blocking_rule_decided_at_the_end_raises_hold_to_final(self, name: str) -> None:
        held = settings(NO_CITATIONS, WHOLE_REPLY_RULES[name])
        assert (held.stream_mode, held.held_to_end_by) == ("final", (name,))

    @pytest.mark.parametrize("name", WHOLE_REPLY_RULES)
    @pytest.mark.parametrize("mode", ["live", "final"])
    def test_other_modes_are_kept(self, name: str, mode: str) -> None:
        other = settings({**WHOLE_REPLY_RULES[name], "stream_mode": mode})
        assert (other.stream_mode, other.held_to_end_by) == (mode, ())

    @pytest.mark.parametrize(
        "rules",
        [
            {},
            {**WHOLE_REPLY_RULES["require_source_grounding"], "action_on_violation": "warn"},
            {"unverifiable_action": "block", "max_unverifiable_ratio": 1.0},
            {**BLOCK, "contradiction_action": "block"},
            {**BLOCK, "unjudged_action": "block"},
            {**BLOCK, "score_eval_mode": "top_n", "score_source": "reported"},
            {**BLOCK, "on_judge_unavailable": "block"},
        ],
    )
    def test_rules_decided_per_sentence_or_only_warning_raise_nothing(self, rules: dict[str, Any]) -> None:
        assert settings(rules).stream_mode == "hold"

    def test_each_rule_is_named_once(self) -> None:
        strict = {"action_on_violation": "block", "llm_grounding_check": True}
        assert settings(strict, strict).held_to_end_by == ("llm_grounding_check", "min_citations")
