"""Warnings about the scope of a policy, and those of its category."""

import pytest

from policies.policy_warnings import GatewayFacts, RuleWarning, policy_warnings
from policies.registry import parse_rules

FACTS = GatewayFacts(serves=lambda model: model.startswith("gpt-"))


@pytest.mark.parametrize("category", ["retrieval", "grounding"])
def test_unserved_model_is_warned_of(category: str) -> None:
    found = policy_warnings(category, parse_rules(category, {}), ["gpt-4o", "claude-*"], FACTS)
    assert found == (
        RuleWarning(loc=("scope", "models"), msg="No upstream serves 'claude-*', so this entry matches no requests."),
    )
    assert policy_warnings(category, parse_rules(category, {}), ["claude-*"], GatewayFacts()) == ()


def test_grounding_rules_are_checked() -> None:
    rules = parse_rules("grounding", {"unjudged_action": "strip", "stream_mode": "live"})
    assert [warning.loc for warning in policy_warnings("grounding", rules, [], FACTS)] == [("rules", "unjudged_action")]
