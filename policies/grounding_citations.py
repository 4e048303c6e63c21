"""The checks of grounding policies that are about citations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from judges.types import ClaimVerdict, Label
from policies.citations import distinct_documents
from policies.grounding_rules import GroundingRules
from policies.types import Action, Citation, Record, Violation


def few_citations(rules: GroundingRules, record: Record) -> Iterator[Violation]:
    count = len(distinct_documents(record.citations))
    if count < rules.min_citations:
        reason = f"Citations ({count}) below minimum ({rules.min_citations})"
        yield of_audit(rules, record, reason, "GROUNDING_CITATIONS")


def no_citations(rules: GroundingRules, record: Record) -> Iterator[Violation]:
    if rules.require_source_grounding and not distinct_documents(record.citations):
        reason = "No source citations provided (grounding required)"
        yield of_audit(rules, record, reason, "GROUNDING_REQUIRED")


def of_audit(rules: GroundingRules, record: Record, reason: str, code: str, **metadata: Any) -> Violation:
    """A violation of the audit of a whole reply, which says how many documents it cites."""
    count = len(distinct_documents(record.citations))
    return Violation(
        action=Action(rules.action_on_violation),
        reason=reason,
        reason_code=code,
        metadata={"warnings": [reason], "citation_count": count, **metadata},
    )


def bad_citations(rules: GroundingRules, record: Record) -> Iterator[Violation]:
    if not rules.require_valid_citations:
        return
    by_sentence = _by_sentence(record)
    seen: set[tuple[str, int | None]] = set()
    for citation in record.citations:
        where = None if citation.document_index is None else citation.sentence_index
        if citation.reported or (citation.marker, where) in seen:
            continue
        seen.add((citation.marker, where))
        if citation.document_index is None:
            count = len(record.chunks)
            yield _bad_citation(
                rules,
                f"Citation {citation.marker} names no document ({count} given)",
                {"marker": citation.marker, "count": count},
            )
        elif not _backs(rules, record, citation, by_sentence):
            document = record.chunks[citation.document_index]
            yield _bad_citation(
                rules,
                f"Citation {citation.marker} does not support its sentence",
                {
                    "marker": citation.marker,
                    "count": len(record.chunks),
                    "document_id": document.id,
                    "document_index": citation.document_index,
                    "sentence_index": citation.sentence_index,
                },
            )


def _bad_citation(rules: GroundingRules, reason: str, metadata: dict[str, Any]) -> Violation:
    return Violation(
        action=Action(rules.action_on_violation),
        reason=reason,
        reason_code="GROUNDING_BAD_CITATION",
        metadata=metadata,
    )


def _by_sentence(record: Record) -> dict[int, list[ClaimVerdict]]:
    """The claims that a judge has a verdict of, by sentence."""
    claims: dict[int, list[ClaimVerdict]] = {}
    for claim in record.claims:
        if claim.label is not Label.NOT_A_CLAIM and claim.reason is None:
            claims.setdefault(claim.claim.sentence_index, []).append(claim)
    return claims


def _backs(
    rules: GroundingRules, record: Record, citation: Citation, by_sentence: Mapping[int, Sequence[ClaimVerdict]]
) -> bool:
    """Whether the document cited supports one claim of the sentence at least; True where there is none to support."""
    claims = by_sentence.get(citation.sentence_index, []) if citation.sentence_index is not None else []
    cited = citation.document_index
    if not claims or cited is None:
        return True
    return any(_supports(rules, record, cited, claim) for claim in claims)


def _supports(rules: GroundingRules, record: Record, cited: int, claim: ClaimVerdict) -> bool:
    if cited in claim.support:
        return claim.support[cited] >= rules.entailment_threshold
    if rules.label(claim) is not Label.SUPPORTED or claim.best_source is None:
        return False
    best = claim.best_source
    return cited == best.document_index or (best.source is not None and record.chunks[cited].source == best.source)
