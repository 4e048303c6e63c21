"""Every combination of rules that causes a warning when a policy is saved, and combinations that don't."""

from typing import Any

import pytest

from policies.base import GatewayFacts
from policies.grounding.evaluator import GROUNDING
from policies.grounding.rules import GroundingRules
from policies.registry import parse_rules
from policies.templates import templates

QUIET: dict[str, Any] = {"min_citations": 0}
NO_LLM = GatewayFacts(
    llm_fault="no model is configured",
    llm_model_fault=lambda model: f"cannot determine the provider of the model {model!r}",
)


def warned(rules: dict[str, Any], facts: GatewayFacts = GatewayFacts()) -> dict[str, str]:
    """The warnings by rule."""
    parsed = parse_rules("grounding", QUIET | rules)
    assert isinstance(parsed, GroundingRules)
    found = list(GROUNDING.warnings(parsed, facts))
    assert all(warning.loc[0] == "rules" and warning.loc[1] in GroundingRules.model_fields for warning in found)
    return {warning.loc[1]: warning.msg for warning in found}


BLOCK = {"action_on_violation": "block"}


@pytest.mark.parametrize(
    ("rules", "facts", "rule", "says"),
    [
        ({"score_relevance_floor": 0.5}, {}, "score_relevance_floor", "doesn't apply to the judge's scores"),
        ({"min_citations": 2}, {}, "min_citations", "Models rarely cite documents unless"),
        ({**BLOCK, "min_citations": 1, "stream_mode": "final"}, {}, "min_citations", "Set grounding.inject"),
        ({"require_source_grounding": True}, {}, "require_source_grounding", "ask for citations in your prompt"),
        (
            {**BLOCK, "max_unsupported_claims": 0, "min_coverage": 0.5},
            {},
            "stream_mode",
            "'hold' works like 'final', because these rules block and need the whole reply: "
            "max_unsupported_claims, min_coverage.",
        ),
        (
            {"unverifiable_action": "block", "stream_mode": "live"},
            {},
            "stream_mode",
            "has been sent before these rules can block it: max_unverifiable_ratio.",
        ),
        ({"unjudged_action": "block", "stream_mode": "live"}, {}, "unjudged_action", "'block' only ends the stream"),
        ({"unjudged_action": "strip", "stream_mode": "live"}, {}, "unjudged_action", "'strip' has no effect"),
        ({"unverifiable_action": "strip", "stream_mode": "live"}, {}, "unverifiable_action", "'strip' has no effect"),
        ({"contradiction_action": "correct", "stream_mode": "live"}, {}, "contradiction_action", "'correct' has no"),
        (
            {"contradiction_action": "correct"},
            NO_LLM,
            "contradiction_action",
            "No LLM judge can write corrections (no model is configured)",
        ),
        (
            {"llm_grounding_check": True, "llm_grounding_model": "nobody-7b"},
            NO_LLM,
            "llm_grounding_model",
            "The LLM grounding check is skipped: cannot determine the provider of the model 'nobody-7b'.",
        ),
    ],
)
def test_ineffective_rules_are_warned_of(
    rules: dict[str, Any], facts: GatewayFacts | dict[str, Any], rule: str, says: str
) -> None:
    found = warned(rules, facts if isinstance(facts, GatewayFacts) else GatewayFacts())
    assert set(found) == {rule}
    assert says in found[rule]


@pytest.mark.parametrize(
    ("rules", "facts"),
    [
        ({}, NO_LLM),
        ({"min_citations": 1}, NO_LLM),
        ({"score_relevance_floor": 0.5, "score_source": "reported"}, NO_LLM),
        ({"score_relevance_floor": 0.5, "score_source": "retrieval"}, NO_LLM),
        ({"max_unsupported_claims": 0}, NO_LLM),
        ({**BLOCK, "max_unsupported_claims": 0, "stream_mode": "final"}, NO_LLM),
        ({"unjudged_action": "block"}, NO_LLM),
        ({"unjudged_action": "strip", "unverifiable_action": "strip", "stream_mode": "final"}, NO_LLM),
        ({"contradiction_action": "block", "stream_mode": "live"}, NO_LLM),
        ({"contradiction_action": "correct", "llm_grounding_check": True}, GatewayFacts()),
    ],
)
def test_effective_rules_are_not_warned_of(rules: dict[str, Any], facts: GatewayFacts) -> None:
    assert warned(rules, facts) == {}


@pytest.mark.parametrize(
    "template", [one for one in templates() if one["category"] == "grounding"], ids=lambda t: t["name"]
)
def test_stream_mode_of_each_template_suits_its_rules(template: dict[str, Any]) -> None:
    found = warned(template["rules"])
    assert not {"stream_mode", "unjudged_action", "score_relevance_floor"} & set(found)
