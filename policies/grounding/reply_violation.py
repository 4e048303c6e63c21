"""Builds violations about whole replies. Each includes the number of documents that the reply cites."""

from typing import Any

from policies.citations.extraction import distinct_documents
from policies.grounding.rules import GroundingRules
from policies.types import Action, PolicyInputs, Violation


def reply_violation(rules: GroundingRules, inputs: PolicyInputs, reason: str, code: str, **metadata: Any) -> Violation:
    """Build the violation, with the action ``action_on_violation``. ``metadata`` is added to the standard metadata."""
    count = len(distinct_documents(inputs.citations))
    return Violation(
        action=Action(rules.action_on_violation),
        reason=reason,
        reason_code=code,
        metadata={"warnings": [reason], "citation_count": count, **metadata},
    )
