"""The step that a gateway request adds to its run, with the documents used, claims and citations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.events.request_record import RequestRecord
from app.runs.steps import citation_json, claim_json, contradiction_json, document_json
from judges.types import ClaimVerdict, Contradiction, Source
from policies.replay import ChoiceLog
from policies.types import Citation


def call_data(record: RequestRecord, run_id: str) -> dict[str, Any]:
    """Build the step's data in the form that ``app.runs.steps`` reads. If there was no reply, because the request was
    blocked or the upstream failed, it has no documents and no claims."""
    retrieval, choices = record.retrieval, record.choice_logs()
    kept = [place for place in range(len(retrieval.chunks)) if place not in retrieval.dropped] if choices else []
    places = {position: place for place, position in enumerate(kept)}
    claims: list[ClaimVerdict] = []
    citations: list[Citation] = []
    sentences = 0
    for choice in choices:
        claims += _claims(choice, places, sentences)
        citations += _citations(choice, places, sentences)
        sentences += 1 + max(choice.delivered, default=-1)
    return {
        "request_id": record.info.request_id,
        "documents": [document_json(retrieval.chunks[position], run_id) for position in kept],
        "claims": [claim_json(claim) for claim in claims],
        "found_citations": [citation_json(citation) for citation in citations],
        "inconsistencies": [contradiction_json(found) for choice in choices for found in _contradictions(choice)],
        "sentences": sentences,
        **_reported(choices),
    }


def _claims(choice: ChoiceLog, places: Mapping[int, int], sentences: int) -> Iterator[ClaimVerdict]:
    """Yield the claims that were sent to the client."""
    for verdict in choice.inputs.claims:
        if choice.inputs.judged and verdict.claim.sentence_index in choice.delivered:
            claim = replace(verdict.claim, sentence_index=verdict.claim.sentence_index + sentences)
            yield replace(
                verdict,
                claim=claim,
                best_source=_source(verdict.best_source, choice, places),
                contradicting_source=_source(verdict.contradicting_source, choice, places),
                support={
                    places[choice.positions[index]]: entailed for index, entailed in _support(verdict, choice).items()
                },
            )


def _support(verdict: ClaimVerdict, choice: ChoiceLog) -> dict[int, float]:
    """Return how well each of the choice's documents supports a claim: the higher of its evidence and citation
    scores."""
    cited = choice.inputs.cited_support.items()
    by_citation = {index: score for (span, index), score in cited if span == verdict.claim.span}
    both = [*verdict.support.items(), *by_citation.items()]
    return {index: max(score for of, score in both if of == index) for index, _ in both}


def _source(source: Source | None, choice: ChoiceLog, places: Mapping[int, int]) -> Source | None:
    return source and replace(source, document_index=places[choice.positions[source.document_index]])


def _citations(choice: ChoiceLog, places: Mapping[int, int], sentences: int) -> Iterator[Citation]:
    """Yield the citations that were sent to the client. Citation markers without a document concern only the request
    itself."""
    for citation in choice.inputs.citations if choice.delivered else ():
        index, sentence = citation.document_index, citation.sentence_index
        shown = sentence is None or sentence in choice.delivered
        if shown and not _is_from_caller(citation) and (index is not None or citation.reported):
            yield replace(
                citation,
                document_index=None if index is None else places[choice.positions[index]],
                sentence_index=None if sentence is None else sentence + sentences,
            )


def _contradictions(choice: ChoiceLog) -> Sequence[Contradiction]:
    """Return the contradictions between claims in the reply, or with claims in the run's earlier replies."""
    found = choice.inputs.consistency
    return () if found is None else found.contradictions


def _reported(choices: Sequence[ChoiceLog]) -> dict[str, Any]:
    """Return what the caller reported with the request, which is the same for every choice."""
    if not choices:
        return {}
    inputs = choices[0].inputs
    return {
        "grounding_scores": list(inputs.reported_scores),
        "citations": [citation.marker for citation in inputs.citations if _is_from_caller(citation)],
        "unsupported_claims": list(inputs.reported_unsupported),
        "output_confidence": inputs.output_confidence,
    }


def _is_from_caller(citation: Citation) -> bool:
    return citation.reported and citation.sentence_index is None
