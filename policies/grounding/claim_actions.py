"""Decides what happens to a claim in the reply, by its label under the policy's thresholds."""

from judges.types import ClaimVerdict, Label
from policies.grounding.rules import GroundingRules


def label_of(rules: GroundingRules, claim: ClaimVerdict) -> Label:
    """Return the label of ``claim`` under the thresholds in ``rules``."""
    return rules.thresholds.label_of(claim)


def needs_correction(rules: GroundingRules, claim: ClaimVerdict) -> bool:
    """Whether the claim is contradicted, and ``rules`` replace it by a correction if one exists."""
    return rules.contradiction_action == "correct" and label_of(rules, claim) is Label.CONTRADICTED


def is_corrected(rules: GroundingRules, claim: ClaimVerdict, *, replaceable: bool) -> bool:
    """Whether the claim is replaced by its correction. ``replaceable`` means that its text has not been sent yet."""
    return replaceable and claim.correction is not None and needs_correction(rules, claim)


def is_blocked(rules: GroundingRules, claim: ClaimVerdict, *, replaceable: bool) -> bool:
    """Whether the claim is contradicted and ends the reply. If a claim should be corrected but cannot be, it is a
    violation like any other."""
    if label_of(rules, claim) is not Label.CONTRADICTED or is_corrected(rules, claim, replaceable=replaceable):
        return False
    correct = rules.contradiction_action == "correct"
    return (rules.action_on_violation if correct else rules.contradiction_action) == "block"


def is_stripped(rules: GroundingRules, claim: ClaimVerdict, *, replaceable: bool) -> bool:
    """Whether the claim is unverifiable and its sentence is left out."""
    return rules.unverifiable_action == "strip" and replaceable and label_of(rules, claim) is Label.UNVERIFIABLE


def is_left_out(rules: GroundingRules, *, replaceable: bool) -> bool:
    """Unjudged text is left out of the reply."""
    return rules.unjudged_action == "strip" and replaceable
