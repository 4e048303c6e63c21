"""Checks whether claims in a reply contradict each other. Policies do no I/O, so the caller compares the claims first
and passes the result in the inputs.
"""

from collections.abc import Iterator
from typing import Any

from judges.types import LocatedStatement
from policies.grounding.rules import GroundingRules
from policies.reason_texts import ELLIPSIS
from policies.types import Action, PolicyInputs, Violation


def check_consistency(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Report claims in the reply that contradict each other or claims in the run's earlier replies. If the claims could
    not be compared, this adds a warning and never blocks."""
    found = inputs.consistency if rules.factual_consistency_check else None
    if found is None:
        return
    if found.reason not in (None, "unavailable"):
        yield Violation(
            action=Action.WARN,
            reason=f"Claims not compared with each other: {found.reason}",
            reason_code="GROUNDING_NOT_CHECKED",
            metadata={"not_compared": found.reason},
        )
    for contradiction in found.contradictions:
        if contradiction.score >= rules.contradiction_threshold:
            first, second = contradiction.first, contradiction.second
            yield Violation(
                action=Action(rules.action_on_violation),
                reason=f'Claims contradict each other: "{first.text}" / "{second.text}"',
                reason_code="GROUNDING_INCONSISTENT",
                metadata={"claims": [_claim_metadata(first), _claim_metadata(second)], "score": contradiction.score},
                without_text=f'Claims contradict each other: "{ELLIPSIS}" / "{ELLIPSIS}"',
            )


def _claim_metadata(side: LocatedStatement) -> dict[str, Any]:
    """Return a claim's metadata, without a span if the claim is from an earlier reply."""
    return {
        "claim": side.text,
        "span": None if side.earlier else [side.span.start, side.span.end],
        "earlier": side.earlier,
    }
