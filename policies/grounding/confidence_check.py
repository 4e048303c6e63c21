"""Is the confidence in the reply too low to answer?"""

from collections.abc import Iterator

from policies import number_format
from policies.grounding.rules import GroundingRules
from policies.types import Action, PolicyInputs, Violation


def check_confidence(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """The reported confidence, or else the trust score, is below ``abstention_threshold``."""
    confidence = inputs.trust_score if inputs.output_confidence is None else inputs.output_confidence
    threshold = rules.abstention_threshold
    if confidence is not None and threshold is not None and confidence < threshold:
        yield Violation(
            action=Action(rules.action_on_violation),
            reason=f"Output confidence ({number_format.score(confidence)}) below abstention threshold "
            f"({number_format.number(threshold)})",
            reason_code="GROUNDING_ABSTAIN",
            metadata={"output_confidence": confidence, "threshold": threshold},
        )
