"""What happens to a claim in the reply, by its label under the policy's thresholds."""

from judges.types import ClaimVerdict, Label
from policies.grounding.rules import GroundingRules


def label_of(rules: GroundingRules, claim: ClaimVerdict) -> Label:
    """The label of ``claim`` under the thresholds of ``rules``."""
    return rules.thresholds.label_of(claim)


def needs_correction(rules: GroundingRules, claim: ClaimVerdict) -> bool:
    """The claim is contradicted and ``rules`` replace it by a correction, if there is one."""
    return rules.contradiction_action == "correct" and label_of(rules, claim) is Label.CONTRADICTED


def is_corrected(rules: GroundingRules, claim: ClaimVerdict, *, replaceable: bool) -> bool:
    """The claim is replaced by its correction. ``replaceable``: its text has not been sent yet."""
    return replaceable and claim.correction is not None and needs_correction(rules, claim)


def is_blocked(rules: GroundingRules, claim: ClaimVerdict, *, replaceable: bool) -> bool:
    """The claim is contradicted and ends the reply. A claim to be corrected that cannot be is a violation like any
    other."""
    if label_of(rules, claim) is not Label.CONTRADICTED or is_corrected(rules, claim, replaceable=replaceable):
        return False
    correct = rules.contradiction_action == "correct"
    return (rules.action_on_violation if correct else rules.contradiction_action) == "block"


def is_stripped(rules: GroundingRules, claim: ClaimVerdict, *, replaceable: bool) -> bool:
    """The claim is unverifiable and its sentence is left out."""
    return rules.unverifiable_action == "strip" and replaceable and label_of(rules, claim) is Label.UNVERIFIABLE


def is_left_out(rules: GroundingRules, *, replaceable: bool) -> bool:
    """Unjudged text is left out of the reply."""
    return rules.unjudged_action == "strip" and replaceable
