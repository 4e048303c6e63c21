"""Checks for claims that the sources contradict or don't support, and for unjudged text."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from judges.types import ClaimVerdict, Label, Sentence, SentenceVerdict, Span, Standing
from policies import reason_texts
from policies.grounding.reply_violation import reply_violation
from policies.grounding.rules import GroundingRules
from policies.reason_texts import ELLIPSIS
from policies.types import Action, PolicyInputs, UnjudgedText, Violation


def check_sentence_claims(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Report claims whose sentence must not be sent unchanged: first those that are blocked, then those that are
    corrected, then those left out."""
    replaceable = inputs.strippable
    for claim in inputs.claims:
        if rules.is_blocked(claim, replaceable=replaceable):
            yield _contradiction(claim, Action.BLOCK)
    for claim in inputs.claims:
        if rules.is_corrected(claim, replaceable=replaceable):
            yield _contradiction(claim, Action.WARN)
    for claim in inputs.claims:
        if rules.is_stripped(claim, replaceable=replaceable):
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
        if rules.thresholds.label_of(claim) is Label.CONTRADICTED:
            blocked = rules.is_blocked(claim, replaceable=inputs.strippable)
            yield _contradiction(claim, Action.BLOCK if blocked else Action.WARN)


def check_unsupported_claims(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Check that there are at most ``max_unsupported_claims`` unsupported claims, whether judged or reported by the
    caller."""
    if rules.max_unsupported_claims is None:
        return
    unsupported = (Label.UNVERIFIABLE, Label.CONTRADICTED)
    judged = (claim.claim.text for claim in inputs.claims if rules.thresholds.label_of(claim) in unsupported)
    claims = [*inputs.reported_unsupported, *judged]
    if len(claims) > rules.max_unsupported_claims:
        reason = f"Unsupported claims ({len(claims)}) exceeds max ({rules.max_unsupported_claims})"
        yield reply_violation(rules, inputs, reason, "GROUNDING_UNSUPPORTED", claims=claims)


def check_unverifiable_ratio(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Check that the ratio of unverifiable claims is at most ``max_unverifiable_ratio``."""
    labels = [(claim, rules.thresholds.label_of(claim)) for claim in inputs.claims]
    claims = [claim for claim, label in labels if label is not Label.NOT_A_CLAIM]
    unverifiable = [claim.claim.text for claim, label in labels if label is Label.UNVERIFIABLE]
    if not claims:
        return
    ratio = len(unverifiable) / len(claims)
    limit = rules.max_unverifiable_ratio
    if ratio > limit:
        yield Violation(
            action=Action.BLOCK if rules.unverifiable_action == "block" else Action.WARN,
            reason=f"Unverifiable claims {reason_texts.share_beside(ratio, limit)} (max {reason_texts.limit(limit)})",
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


_REASON = "Unjudged text "

NO_DOCUMENTS = "no_documents"
"""The kind of unjudged text in a reply without documents."""
UNAVAILABLE = "unavailable"
"""The kind of unjudged text if no judge was available."""


def check_sentence_unjudged(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Report unjudged text that must not be sent. Depending on the rules, the reply is blocked or the text is left
    out."""
    if _is_blocked(rules, inputs):
        yield from (_violation(text, Action.BLOCK) for text in joined(inputs.unjudged))
    elif rules.leaves_out_unjudged(replaceable=inputs.strippable):
        yield from (_violation(text, Action.DROP) for text in joined(inputs.unjudged))


def check_unjudged(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Report unjudged text in the whole reply, except text that was left out. There is no warning if documents are
    missing, because the decision says so anyway."""
    if rules.unjudged_action == "allow" or rules.leaves_out_unjudged(replaceable=inputs.strippable):
        return
    action = Action.BLOCK if _is_blocked(rules, inputs) else Action.WARN
    for text in joined(inputs.unjudged):
        if action is Action.BLOCK or text.kind != NO_DOCUMENTS:
            yield _violation(text, action)


def _is_blocked(rules: GroundingRules, inputs: PolicyInputs) -> bool:
    """Return whether unjudged text blocks the reply."""
    return rules.unjudged_action == "block" or (rules.unjudged_action == "strip" and inputs.indivisible)


def check_coverage(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Report a reply in which the share of judged or harmless text is below ``min_coverage``."""
    coverage, minimum = inputs.coverage, rules.min_coverage
    if coverage is not None and coverage < minimum:
        yield Violation(
            action=Action(rules.action_on_violation),
            reason=f"Coverage {reason_texts.share_beside(coverage, minimum)} below minimum "
            f"{reason_texts.limit(minimum)}",
            reason_code="GROUNDING_COVERAGE",
            metadata={"coverage": coverage, "minimum": minimum},
        )


def joined(unjudged: Sequence[UnjudgedText]) -> list[UnjudgedText]:
    """Join adjacent unjudged texts of the same kind. This makes a block of code a single item, however many sentences
    it contains.
    """
    runs: list[list[UnjudgedText]] = []
    for text in unjudged:
        last = runs[-1][-1] if runs else None
        if last is not None and (last.kind, last.span.end) == (text.kind, text.span.start):
            runs[-1].append(text)
        else:
            runs.append([text])
    return [
        replace(run[0], span=Span(run[0].span.start, run[-1].span.end), text="".join(text.text for text in run))
        for run in runs
    ]


def quotes_unjudged(reason: str) -> bool:
    """Return whether ``reason``, which may combine several violations, quotes unjudged text."""
    return _REASON in reason


def _violation(text: UnjudgedText, action: Action) -> Violation:
    return Violation(
        action=action,
        reason=f'{_REASON}({text.kind}): "{text.excerpt}"',
        reason_code="GROUNDING_UNJUDGED",
        metadata={"kind": text.kind, "characters": text.characters},
        without_text=f'{_REASON}({text.kind}): "{ELLIPSIS}"',
    )


def unjudged_texts(verdict: SentenceVerdict) -> list[UnjudgedText]:
    """Return the text in a sentence that is neither judged nor harmless, in order. A sentence without parts wasn't
    judged, so all of it is unjudged.
    """
    sentence = verdict.sentence
    if not verdict.parts:
        return [] if sentence.text.isspace() else [_text(sentence, sentence.span, UNAVAILABLE)]
    return [
        _text(sentence, part.span, part.kind or UNAVAILABLE)
        for part in verdict.parts
        if part.standing is Standing.UNJUDGED
    ]


def _text(sentence: Sentence, span: Span, kind: str) -> UnjudgedText:
    start = sentence.span.start
    text = sentence.text[span.start - start : span.end - start]
    return UnjudgedText(kind=kind, span=span, sentence_index=sentence.index, text=text)
