"""Builds the step that a gateway request adds to its run, with the used documents, the claims and the citations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.events.request_record import ChoiceRecord, RequestRecord
from app.runs.reported_names import hidden
from app.runs.steps import citation_json, claim_json, contradiction_json, document_json
from judges.types import ClaimVerdict, Contradiction, Source, Standing
from policies.replay import ChoiceLog
from policies.types import Citation


def call_data(record: RequestRecord, run_id: str, *, keep_texts: bool, keep_markers: bool) -> dict[str, Any]:
    """Build the step's data in the form that ``app.runs.steps`` reads. If there was no reply, because the request was
    blocked or the upstream failed, the step has no documents and no claims. With ``keep_texts``, the text of documents
    is stored. With ``keep_markers``, the text of citation markers is stored."""
    retrieval = record.retrieval
    logged = [(choice, choice.log()) for choice in record.reply.choices if choice.log is not None]
    choices = [log for _, log in logged]
    kept = [place for place in range(len(retrieval.chunks)) if place not in retrieval.dropped] if choices else []
    places = {position: place for place, position in enumerate(kept)}
    claims: list[ClaimVerdict] = []
    statements: list[dict[str, Any]] = []
    citations: list[Citation] = []
    sentences = 0
    for said, choice in logged:
        claims += _claims(choice, places, sentences)
        statements += () if choice.inputs.judged else _statements(said, sentences)
        citations += _citations(choice, places, sentences)
        sentences += 1 + max(choice.delivered, default=-1)
    return {
        "request_id": record.info.request_id,
        "documents": [document_json(retrieval.chunks[position], run_id, keep_text=keep_texts) for position in kept],
        "claims": [claim_json(claim) for claim in claims],
        "statements": statements,
        "found_citations": [citation_json(citation, run_id, keep_text=keep_markers) for citation in citations],
        "inconsistencies": [contradiction_json(found) for choice in choices for found in _contradictions(choice)],
        "sentences": sentences,
        **_reported(choices, keep_markers=keep_markers),
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


def _statements(choice: ChoiceRecord, sentences: int) -> Iterator[dict[str, Any]]:
    """Yield the unjudged sentences of a reply that were sent to the client and make a statement."""
    for each in choice.sentences:
        sentence, parts = each.verdict.sentence, each.verdict.parts
        if each.delivered and not each.retracted and any(part.standing is Standing.UNJUDGED for part in parts):
            yield {"text": sentence.plain, "sentence": sentence.index + sentences}


def _support(verdict: ClaimVerdict, choice: ChoiceLog) -> dict[int, float]:
    """Return how well each document of the choice supports a claim: the higher of its score as evidence and its score
    as a cited document."""
    cited = choice.inputs.cited_support.items()
    by_citation = {index: score for (span, index), score in cited if span == verdict.claim.span}
    both = [*verdict.support.items(), *by_citation.items()]
    return {index: max(score for of, score in both if of == index) for index, _ in both}


def _source(source: Source | None, choice: ChoiceLog, places: Mapping[int, int]) -> Source | None:
    return source and replace(source, document_index=places[choice.positions[source.document_index]])


def _citations(choice: ChoiceLog, places: Mapping[int, int], sentences: int) -> Iterator[Citation]:
    """Yield the citations that were sent to the client. Citation markers that refer to no document are left out,
    because the policies of the request have already decided on them."""
    for citation in choice.inputs.citations if choice.delivered else ():
        sentence = citation.sentence_index
        shown = sentence is None or sentence in choice.delivered
        if shown and not _is_from_caller(citation) and (citation.documents or citation.reported):
            in_run = {index: places[choice.positions[index]] for index in citation.documents}
            yield replace(
                citation.moved(in_run),
                sentence_index=None if sentence is None else sentence + sentences,
            )


def _contradictions(choice: ChoiceLog) -> Sequence[Contradiction]:
    """Return the contradictions between claims in the reply, and between the reply and earlier replies in the run."""
    found = choice.inputs.consistency
    return () if found is None else found.contradictions


def _reported(choices: Sequence[ChoiceLog], *, keep_markers: bool) -> dict[str, Any]:
    """Return the values that the caller reported with the request, which are the same for every choice."""
    if not choices:
        return {}
    inputs = choices[0].inputs
    cited = [citation.marker for citation in inputs.citations if _is_from_caller(citation)]
    return {
        "grounding_scores": list(inputs.reported_scores),
        "citations": cited if keep_markers else [hidden(name) for name in cited],
        "unsupported_claims": list(inputs.reported_unsupported),
        "output_confidence": inputs.output_confidence,
    }


def _is_from_caller(citation: Citation) -> bool:
    return citation.reported and citation.sentence_index is None
