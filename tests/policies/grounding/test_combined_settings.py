"""What several grounding policies ask for together."""

from typing import Any

import pytest

from judges.thresholds import Thresholds
from judges.types import ScoreRequest
from policies.grounding.combined_settings import GroundingSettings
from tests.support.policy_builders import policy

MODEL = "gpt-4o-mini"


def settings(*rules: dict[str, Any]) -> GroundingSettings:
    """``rules`` of several policies, the highest priority first."""
    return GroundingSettings.of([policy("grounding", f"p{number}", **each) for number, each in enumerate(rules)])


def test_each_setting_is_that_of_the_first_the_most_generous_or_the_strictest_policy() -> None:
    both = settings(
        {"entailment_threshold": 0.8, "stream_mode": "live", "max_claims": 5},
        {"contradiction_threshold": 0.9, "stream_mode": "hold", "max_sources_per_claim": 9, "max_claims": 7},
    )
    assert both.thresholds == Thresholds(entailment=0.8, contradiction=0.7)
    assert both.max_sources_per_claim == 9
    assert both.max_claims == 7
    assert both.stream_mode == "hold"
    assert settings({"max_claims": 5}, {}).max_claims is None
    assert settings({"stream_mode": "live"}).stream_mode == "live"
    assert settings({"stream_mode": "live"}, {"stream_mode": "final"}).stream_mode == "final"
    assert settings({"max_regenerations": 1}, {"max_regenerations": 3}).max_regenerations == 3


def test_without_a_policy_the_defaults_apply() -> None:
    assert settings() == settings({}) == GroundingSettings.of([policy("retrieval")])


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
    ],
)
def test_one_policy_is_enough(name: str, rules: dict[str, Any]) -> None:
    assert getattr(settings({}, rules), name)
    assert not getattr(settings({}, {}), name)
