"""Checks for claims that the sources contradict or do not support."""

from collections.abc import Iterator
from typing import Any

from judges.types import ClaimVerdict, Label
from policies import number_format
from policies.grounding.claim_actions import is_blocked, is_corrected, is_stripped, label_of
from policies.grounding.reply_violation import reply_violation
from policies.grounding.rules import GroundingRules
from policies.redaction import ELLIPSIS
from policies.types import Action, PolicyInputs, Violation


def check_sentence_claims(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Report claims whose sentence must not be sent unchanged: blocked ones first, then corrected ones, then those left
    out."""
    replaceable = inputs.strippable
    for claim in inputs.claims:
        if is_blocked(rules, claim, replaceable=replaceable):
            yield _contradiction(claim, Action.BLOCK)
    for claim in inputs.claims:
        if is_corrected(rules, claim, replaceable=replaceable):
            yield _contradiction(claim, Action.WARN)
    for claim in inputs.claims:
        if is_stripped(rules, claim, replaceable=replaceable):
            yield Violation(
                action=Action.DROP,
                reason=f'Unverifiable claim left out: "{claim.claim.text}"',
                reason_code="GROUNDING_UNVERIFIABLE",
                metadata=_claim_metadata(claim, Label.UNVERIFIABLE),
                without_text=f'Unverifiable claim left out: "{ELLIPSIS}"',
            )


def check_contradictions(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Report every contradicted claim in the reply."""
    for claim in inputs.claims:
        if label_of(rules, claim) is Label.CONTRADICTED:
            blocked = is_blocked(rules, claim, replaceable=inputs.strippable)
            yield _contradiction(claim, Action.BLOCK if blocked else Action.WARN)


def check_unsupported_claims(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Check that there are at most ``max_unsupported_claims`` unsupported claims, judged or reported."""
    if rules.max_unsupported_claims is None:
        return
    unsupported = (Label.UNVERIFIABLE, Label.CONTRADICTED)
    judged = (claim.claim.text for claim in inputs.claims if label_of(rules, claim) in unsupported)
    claims = [*inputs.reported_unsupported, *judged]
    if len(claims) > rules.max_unsupported_claims:
        reason = f"Unsupported claims ({len(claims)}) exceeds max ({rules.max_unsupported_claims})"
        yield reply_violation(rules, inputs, reason, "GROUNDING_UNSUPPORTED", claims=claims)


def check_unverifiable_ratio(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Check that the ratio of unverifiable claims is at most ``max_unverifiable_ratio``."""
    labels = [(claim, label_of(rules, claim)) for claim in inputs.claims]
    claims = [claim for claim, label in labels if label is not Label.NOT_A_CLAIM]
    unverifiable = [claim.claim.text for claim, label in labels if label is Label.UNVERIFIABLE]
    if not claims:
        return
    ratio = len(unverifiable) / len(claims)
    limit = rules.max_unverifiable_ratio
    if ratio > limit:
        yield Violation(
            action=Action.BLOCK if rules.unverifiable_action == "block" else Action.WARN,
            reason=f"Unverifiable claims {number_format.share(ratio)} (max {number_format.limit(limit)})",
            reason_code="GROUNDING_UNVERIFIABLE",
            metadata={"ratio": ratio, "max": limit, "claims": unverifiable},
        )


def _contradiction(claim: ClaimVerdict, action: Action) -> Violation:
    against = claim.source_for(Label.CONTRADICTED)
    name = f"source '{against.source or against.document_id}'" if against else "its sources"
    metadata = _claim_metadata(claim, Label.CONTRADICTED)
    if claim.correction is not None:
        metadata["correction"] = claim.correction
    return Violation(
        action=action,
        reason=f'Claim contradicts {name}: "{claim.claim.text}"',
        reason_code="GROUNDING_CONTRADICTION",
        metadata=metadata,
        without_text=f'Claim contradicts {name}: "{ELLIPSIS}"',
    )


def _claim_metadata(claim: ClaimVerdict, label: Label) -> dict[str, Any]:
    source = claim.source_for(label)
    best = source and {
        "document_id": source.document_id,
        "document_index": source.document_index,
        "source": source.source,
        "score": source.score,
        "span": [source.span.start, source.span.end],
    }
    return {
        "claim": claim.claim.text,
        "verdict": label.value,
        "sentence_index": claim.claim.sentence_index,
        "best_source": best,
    }
