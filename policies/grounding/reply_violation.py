"""A violation by a whole reply, which says how many documents the reply cites."""

from typing import Any

from policies.citations.extraction import distinct_documents
from policies.grounding.rules import GroundingRules
from policies.types import Action, PolicyInputs, Violation


def reply_violation(rules: GroundingRules, inputs: PolicyInputs, reason: str, code: str, **metadata: Any) -> Violation:
    """With ``action_on_violation`` as its action; ``metadata`` is added to the usual."""
    count = len(distinct_documents(inputs.citations))
    return Violation(
        action=Action(rules.action_on_violation),
        reason=reason,
        reason_code=code,
        metadata={"warnings": [reason], "citation_count": count, **metadata},
    )
