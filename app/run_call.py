"""What a governed request adds to its run: the documents used, and what its reply was found to be."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.run_steps import citation_json, claim_json, document_json
from app.trace import Trace
from judges.types import ClaimVerdict, Source
from policies.replay import ChoiceLog
from policies.types import Citation


def call_data(trace: Trace, run_id: str) -> dict[str, Any]:
    """The data of a step, as ``app.run_steps`` reads it. Without a reply (the request was blocked, or the upstream
    failed) nothing was used and nothing found."""
    kept = [document.position for document in trace.documents if document.kept] if trace.choices else []
    places = {position: place for place, position in enumerate(kept)}
    claims: list[ClaimVerdict] = []
    citations: list[Citation] = []
    sentences = 0
    for choice in trace.choices:
        claims += _claims(choice, places, sentences)
        citations += _citations(choice, places, sentences)
        sentences += 1 + max(choice.delivered, default=-1)
    return {
        "request_id": trace.request_id,
        "documents": [document_json(trace.chunks[position], run_id) for position in kept],
        "claims": [claim_json(claim) for claim in claims],
        "found_citations": [citation_json(citation) for citation in citations],
        "sentences": sentences,
        **_reported(trace.choices),
    }


def _claims(choice: ChoiceLog, places: Mapping[int, int], sentences: int) -> Iterator[ClaimVerdict]:
    """The claims that reached the client."""
    for verdict in choice.record.claims:
        if choice.record.judged and verdict.claim.sentence_index in choice.delivered:
            claim = replace(verdict.claim, sentence_index=verdict.claim.sentence_index + sentences)
            yield replace(
                verdict,
                claim=claim,
                best_source=_source(verdict.best_source, choice, places),
                contradicting_source=_source(verdict.contradicting_source, choice, places),
                support={places[choice.positions[index]]: entailed for index, entailed in verdict.support.items()},
            )


def _source(source: Source | None, choice: ChoiceLog, places: Mapping[int, int]) -> Source | None:
    return source and replace(source, document_index=places[choice.positions[source.document_index]])


def _citations(choice: ChoiceLog, places: Mapping[int, int], sentences: int) -> Iterator[Citation]:
    """What the sentences that reached the client cite. A marker that names no document was the request's own matter."""
    for citation in choice.record.citations:
        index, sentence = citation.document_index, citation.sentence_index
        if sentence is None or sentence not in choice.delivered or (index is None and not citation.reported):
            continue
        yield replace(
            citation,
            document_index=None if index is None else places[choice.positions[index]],
            sentence_index=sentence + sentences,
        )


def _reported(choices: Sequence[ChoiceLog]) -> dict[str, Any]:
    """What the caller reported with the request: every choice has the same."""
    if not choices:
        return {}
    record = choices[0].record
    return {
        "grounding_scores": list(record.reported_scores),
        "citations": [citation.marker for citation in record.citations if _is_callers(citation)],
        "unsupported_claims": list(record.reported_unsupported),
        "output_confidence": record.output_confidence,
    }


def _is_callers(citation: Citation) -> bool:
    return citation.reported and citation.sentence_index is None
