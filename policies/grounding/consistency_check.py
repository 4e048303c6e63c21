"""The check of grounding policies that compares the claims of a reply with each other.

Comparing takes time and policies do not wait: the caller compares beforehand and puts the result into the inputs.
"""

from collections.abc import Iterator
from typing import Any

from judges.types import Stated
from policies.grounding.rules import GroundingRules
from policies.types import Action, PolicyInputs, Violation


def inconsistent(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Claims of the reply that contradict each other, or claims of earlier replies of its run; or a warning where they
    could not be compared, since that never blocks."""
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
                metadata={"claims": [_claim(first), _claim(second)], "score": contradiction.score},
            )


def _claim(side: Stated) -> dict[str, Any]:
    """A claim of an earlier reply has no place in this one."""
    return {
        "claim": side.text,
        "span": None if side.earlier else [side.span.start, side.span.end],
        "earlier": side.earlier,
    }
