"""Checks that the reply cites documents and that the cited documents support it."""

from collections.abc import Collection, Iterator

from judges.types import ClaimVerdict, Label
from policies.citations.extraction import distinct_documents
from policies.grounding.reply_violation import reply_violation
from policies.grounding.rules import GroundingRules
from policies.reason_texts import redacted_marker
from policies.types import Action, Citation, PolicyInputs, Violation

FABRICATED = "fabricated"
"""A citation that matches no document in the request."""
MISATTRIBUTED = "misattributed"
"""A citation of a document that does not support the sentence, even if another document does. If several documents have
the cited name, none of them supports it."""


def check_min_citations(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Check that at least ``min_citations`` distinct documents are cited. A reply without claims needs no citations."""
    count = len(distinct_documents(inputs.citations))
    if count < rules.min_citations and not _claims_nothing(inputs):
        reason = f"Citations ({count}) below minimum ({rules.min_citations})"
        yield reply_violation(rules, inputs, reason, "GROUNDING_CITATIONS")


def check_grounding_required(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Check that a document is cited if ``require_source_grounding`` is set. A reply without claims needs no
    citation."""
    if rules.require_source_grounding and not distinct_documents(inputs.citations) and not _claims_nothing(inputs):
        reason = "No source citations provided (grounding required)"
        yield reply_violation(rules, inputs, reason, "GROUNDING_REQUIRED")


def _claims_nothing(inputs: PolicyInputs) -> bool:
    """Return whether the complete reply contains neither claims nor unjudged text. It may be a refusal, a courtesy or a
    question to the user.
    """
    if not inputs.final or inputs.of_run or inputs.coverage is None:
        return False
    return not inputs.unjudged and all(claim.label is Label.NOT_A_CLAIM for claim in inputs.claims)


def check_citations(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Report fabricated and misattributed citations, each once per sentence. Citations reported by the caller are not
    checked."""
    if not rules.require_valid_citations:
        return
    by_sentence = _by_sentence(inputs)
    seen: set[tuple[str, int | None]] = set()
    for citation in inputs.citations:
        where = None if citation.document_index is None else citation.sentence_index
        if citation.reported or (citation.marker, where) in seen:
            continue
        seen.add((citation.marker, where))
        if citation.document_index is None:
            yield _fabricated(rules, inputs, citation)
        elif claims := by_sentence.get(-1 if where is None else where):
            supporting = {i for c in claims for i in range(len(inputs.chunks)) if _supports(rules, inputs, i, c)}
            if supporting.isdisjoint(citation.documents):
                yield _misattributed(rules, inputs, citation, citation.document_index, supporting)


def _fabricated(rules: GroundingRules, inputs: PolicyInputs, citation: Citation) -> Violation:
    count = len(inputs.chunks)
    return Violation(
        action=Action(rules.action_on_violation),
        reason=f"Citation {citation.marker} names no document ({count} given)",
        reason_code="GROUNDING_BAD_CITATION",
        metadata={"kind": FABRICATED, "marker": citation.marker, "count": count},
        without_text=f"Citation {redacted_marker(citation.marker)} names no document ({count} given)",
    )


def _misattributed(
    rules: GroundingRules, inputs: PolicyInputs, citation: Citation, cited: int, supporting: Collection[int]
) -> Violation:
    return Violation(
        action=Action(rules.action_on_violation),
        reason=f"Citation {citation.marker} does not support its sentence",
        reason_code="GROUNDING_BAD_CITATION",
        metadata={
            "kind": MISATTRIBUTED,
            "marker": citation.marker,
            "count": len(inputs.chunks),
            "document_id": inputs.chunks[cited].id,
            "document_index": cited,
            "sentence_index": citation.sentence_index,
            "supported_by": [inputs.chunks[index].id for index in sorted(supporting)],
        },
        without_text=f"Citation {redacted_marker(citation.marker)} does not support its sentence",
    )


def _by_sentence(inputs: PolicyInputs) -> dict[int, list[ClaimVerdict]]:
    """Group the judged claims by sentence."""
    claims: dict[int, list[ClaimVerdict]] = {}
    for claim in inputs.claims:
        if claim.label is not Label.NOT_A_CLAIM and claim.reason is None:
            claims.setdefault(claim.claim.sentence_index, []).append(claim)
    return claims


def _supports(rules: GroundingRules, inputs: PolicyInputs, document: int, claim: ClaimVerdict) -> bool:
    """Return whether the document supports the claim. If the document was judged, its highest score decides, because a
    claim may draw on several of the documents cited in its sentence."""
    known = (inputs.cited_support.get((claim.claim.span, document)), claim.support.get(document))
    if scores := [score for score in known if score is not None]:
        return max(scores) >= rules.entailment_threshold
    if rules.thresholds.label_of(claim) is not Label.SUPPORTED or claim.best_source is None:
        return False
    best = claim.best_source
    return document == best.document_index or (
        best.source is not None and inputs.chunks[document].source == best.source
    )
