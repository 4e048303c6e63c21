"""What happens to a claim, by its label under a policy's thresholds."""

from typing import Any

import pytest

from judges.types import Label
from policies.grounding.rules import GroundingRules
from tests.support.policy_builders import claim

CONTRADICTED = claim(0.1, contradicted=0.8)
CORRECTED = claim(0.1, contradicted=0.8, correction="It costs 6 euros.")
UNVERIFIABLE = claim(0.1)


def test_claim_decided_by_the_llm_keeps_its_label_under_any_threshold() -> None:
    rules = GroundingRules.model_validate({"contradiction_action": "block", "contradiction_threshold": 0.99})
    assert (
        rules.thresholds.label_of(claim(0.1, contradicted=0.8, label=Label.CONTRADICTED, escalated=True))
        is Label.CONTRADICTED
    )


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
def test_contradicted_claim_with_a_correction_is_corrected(rules: dict[str, Any], blocks: bool, corrects: bool) -> None:
    parsed = GroundingRules.model_validate(rules)
    assert parsed.is_blocked(CORRECTED, replaceable=True) is blocks
    assert parsed.is_corrected(CORRECTED, replaceable=True) is corrects


@pytest.mark.parametrize(("claim", "replaceable"), [(CONTRADICTED, True), (CORRECTED, False)])
@pytest.mark.parametrize("action", ["warn", "block"])
def test_claim_without_a_correction_is_an_ordinary_violation(claim: Any, replaceable: bool, action: str) -> None:
    rules = GroundingRules.model_validate({"contradiction_action": "correct", "action_on_violation": action})
    assert rules.needs_correction(claim)
    assert not rules.is_corrected(claim, replaceable=replaceable)
    assert rules.is_blocked(claim, replaceable=replaceable) is (action == "block")


def test_only_unsent_unverifiable_claims_are_stripped() -> None:
    rules = GroundingRules.model_validate({"unverifiable_action": "strip"})
    assert rules.is_stripped(UNVERIFIABLE, replaceable=True)
    assert not rules.is_stripped(UNVERIFIABLE, replaceable=False)
    assert not rules.is_stripped(CONTRADICTED, replaceable=True)
