"""What happens to a claim, by its label under a policy's thresholds."""

from typing import Any

import pytest

from judges.types import Label
from policies.grounding.claim_actions import is_blocked, is_corrected, is_stripped, label_of, needs_correction
from policies.registry import parse_rules
from tests.support.policy_builders import claim

CONTRADICTED = claim(0.1, contradicted=0.8)
CORRECTED = claim(0.1, contradicted=0.8, correction="It costs 6 euros.")
UNVERIFIABLE = claim(0.1)


def test_a_claim_that_the_llm_decided_keeps_its_label_under_every_threshold() -> None:
    rules = parse_rules("grounding", {"contradiction_action": "block", "contradiction_threshold": 0.99})
    assert label_of(rules, claim(0.1, contradicted=0.8, label=Label.CONTRADICTED, escalated=True)) is Label.CONTRADICTED


@pytest.mark.parametrize(
    ("rules", "blocks", "corrects"),
    [
        ({}, False, False),
        ({"contradiction_action": "block"}, True, False),
        ({"contradiction_action": "block", "contradiction_threshold": 0.9}, False, False),
        ({"contradiction_action": "correct"}, False, True),
        ({"contradiction_action": "correct", "action_on_violation": "block"}, False, True),
    ],
)
def test_a_contradicted_claim_with_a_correction(rules: dict[str, Any], blocks: bool, corrects: bool) -> None:
    parsed = parse_rules("grounding", rules)
    assert is_blocked(parsed, CORRECTED, replaceable=True) is blocks
    assert is_corrected(parsed, CORRECTED, replaceable=True) is corrects


@pytest.mark.parametrize(("claim", "replaceable"), [(CONTRADICTED, True), (CORRECTED, False)])
@pytest.mark.parametrize("action", ["warn", "block"])
def test_a_claim_that_cannot_be_corrected_is_a_violation_like_any_other(
    claim: Any, replaceable: bool, action: str
) -> None:
    rules = parse_rules("grounding", {"contradiction_action": "correct", "action_on_violation": action})
    assert needs_correction(rules, claim)
    assert not is_corrected(rules, claim, replaceable=replaceable)
    assert is_blocked(rules, claim, replaceable=replaceable) is (action == "block")


def test_only_an_unverifiable_claim_that_was_not_sent_is_stripped() -> None:
    rules = parse_rules("grounding", {"unverifiable_action": "strip"})
    assert is_stripped(rules, UNVERIFIABLE, replaceable=True)
    assert not is_stripped(rules, UNVERIFIABLE, replaceable=False)
    assert not is_stripped(rules, CONTRADICTED, replaceable=True)
