"""Assigns the citations of a reply to its sentences, and converts them to OpenAI annotations."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from app.protocols.common.stream_events import UpstreamCitation
from app.reply.judged_sentence import JudgedSentence
from judges.concurrency import FreedInSteps
from judges.types import Chunk, Sentence, Span
from policies.citations.document_names import DocumentNames
from policies.citations.extraction import find_citations
from policies.types import Citation


def cite_sentence(sentence: Sentence, names: DocumentNames) -> list[Citation]:
    """Return the citations in a sentence that can be found without the rest of the reply."""
    alone = structs.replace(sentence, span=Span(0, len(sentence.text)))
    return [replace(found, sentence_index=sentence.index) for found in find_citations(sentence.text, names, [alone])]


def cite_reply(sentences: Sequence[JudgedSentence], text: str, names: DocumentNames) -> None:
    """Assign the citations of a complete reply to its sentences, including markers after a full stop, footnotes and
    lists of sources. ``text`` is the delivered text of ``sentences``."""
    shown = [(judged, judged.offset) for judged in sentences if judged.offset is not None]
    ends = [offset for _, offset in shown[1:]] + [len(text)] * bool(shown)
    spans = [
        structs.replace(judged.verdict.sentence, span=Span(offset, end))
        for (judged, offset), end in zip(shown, ends, strict=True)
    ]
    starts = [one.span.start for one in spans]
    cited: dict[int, list[Citation]] = {}
    for citation in find_citations(text, names, spans):
        index = citation.sentence_index
        if index is None and citation.span is not None:  # in a list of sources
            place = bisect_right(starts, citation.span.start) - 1
            index = spans[place].index if place >= 0 else None
        if index is not None:
            cited.setdefault(index, []).append(citation)
    for judged, _ in shown:
        found = cited.get(judged.verdict.sentence.index, ())
        judged.citations = [citation.attributed(judged.verdict.claims) for citation in found]


def cited_by_upstream(
    cited: Sequence[UpstreamCitation],
    sentences: Sequence[JudgedSentence],
    names: DocumentNames,
    positions: Sequence[int],
) -> list[Citation]:
    """Assign the citations that the upstream reports to sentences. A citation before the first sentence is ignored.
    ``positions`` contains the position of each document in the request."""
    found: list[Citation] = []
    starts, owners = [judged.begin for judged in sentences], _owners(sentences)
    claims = {judged.verdict.sentence.index: judged.verdict.claims for judged in sentences}
    for citation in cited:
        documents = names.first_named(citation.names)
        if citation.document in positions:
            documents = (positions.index(citation.document),)
        sentence = None if citation.place is None else owners[bisect_right(starts, citation.place)]
        if citation.place is None or sentence is not None:
            cites = Citation(
                marker=citation.marker,
                document_index=next(iter(documents), None),
                other_documents=documents[1:],
                sentence_index=sentence,
                reported=citation.unreadable,
            )
            found.append(cites if sentence is None else cites.attributed(claims[sentence]))
    return found


def annotations_of(sentences: Sequence[JudgedSentence], chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    """Build OpenAI's citation objects. Each delivered sentence gets one for every document that it cites or that
    supports it."""
    annotations = FreedInSteps[dict[str, Any]]()
    for sentence in sentences:
        span = sentence.span
        if span is None:
            continue
        supporting = [source.document_index for source in sentence.supporting]
        cited = [c.document_index for c in sentence.citations if c.document_index is not None]
        for index in dict.fromkeys((*supporting, *cited)):
            annotations.append(_annotation(chunks[index], span))
    return annotations


def _annotation(chunk: Chunk, span: Span) -> dict[str, Any]:
    place = {"start_index": span.start, "end_index": span.end}
    if chunk.url and chunk.url.startswith(("https://", "http://")):  # a client may turn the URL into a link
        citation = {**place, "url": chunk.url, "title": chunk.title or chunk.source or chunk.id}
        return {"type": "url_citation", "url_citation": citation}
    filename = chunk.source or chunk.title or chunk.id
    return {"type": "file_citation", "file_citation": {**place, "file_id": chunk.id, "filename": filename}}


def _owners(sentences: Sequence[JudgedSentence]) -> list[int | None]:
    """Return the sentence that a marker belongs to, indexed by the number of sentences that begin before the marker. It
    belongs to the last of them or, if that one makes no claim, to the preceding sentence of the same paragraph."""
    owners: list[int | None] = [None]
    above = "\n"
    for judged in sentences:
        sentence = judged.verdict.sentence
        stands_alone = judged.verdict.claims or owners[-1] is None or above.endswith("\n")
        owners.append(sentence.index if stands_alone else owners[-1])
        above = sentence.text
    return owners
