"""Assigns the citations of a reply to its sentences."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from app.protocols.common.stream_events import UpstreamCitation
from app.reply.judged_sentence import JudgedSentence
from judges.types import Sentence, Span
from policies.citations.document_names import DocumentNames
from policies.citations.extraction import find_citations
from policies.types import Citation


def cite_sentence(sentence: Sentence, names: DocumentNames) -> list[Citation]:
    """The citations in the text of a sentence, as far as the sentence alone shows."""
    alone = replace(sentence, span=Span(0, len(sentence.text)))
    return [replace(found, sentence_index=sentence.index) for found in find_citations(sentence.text, names, [alone])]


def cite_reply(sentences: Sequence[JudgedSentence], text: str, names: DocumentNames) -> None:
    """Assign the citations of a whole reply, now that all of it is known: a marker after a full stop, a footnote, a
    list of sources. ``text`` is the delivered text of the sentences of ``sentences``."""
    shown = [(judged, judged.offset) for judged in sentences if judged.offset is not None]
    ends = [offset for _, offset in shown[1:]] + [len(text)] * bool(shown)
    spans = [
        replace(judged.verdict.sentence, span=Span(offset, end))
        for (judged, offset), end in zip(shown, ends, strict=True)
    ]
    starts = [one.span.start for one in spans]
    cited: dict[int, list[Citation]] = {}
    for citation in find_citations(text, names, spans):
        index = citation.sentence_index
        if index is None and citation.span is not None:  # listed, not cited: its place decides
            place = bisect_right(starts, citation.span.start) - 1
            index = spans[place].index if place >= 0 else None
        if index is not None:
            cited.setdefault(index, []).append(citation)
    for judged, _ in shown:
        judged.citations = cited.get(judged.verdict.sentence.index, [])


def cited_by_upstream(
    cited: Sequence[UpstreamCitation],
    sentences: Sequence[JudgedSentence],
    names: DocumentNames,
    positions: Sequence[int],
) -> list[Citation]:
    """The upstream's own citations; one before the first sentence is ignored. ``positions`` says where in the request
    each document was."""
    found: list[Citation] = []
    starts, owners = [judged.verdict.sentence.span.start for judged in sentences], _owners(sentences)
    for citation in cited:
        index = next((i for name in citation.names if (i := names.get(name)) is not None), None)
        if citation.document in positions:
            index = positions.index(citation.document)
        sentence = None if citation.place is None else owners[bisect_right(starts, citation.place)]
        if citation.place is None or sentence is not None:
            found.append(
                Citation(
                    marker=citation.marker, document_index=index, sentence_index=sentence, reported=citation.unreadable
                )
            )
    return found


def _owners(sentences: Sequence[JudgedSentence]) -> list[int | None]:
    """The sentence that a marker belongs to, by the number of sentences that begin before it: the last of them, or if
    that makes no claim, the one before it in its paragraph."""
    owners: list[int | None] = [None]
    above = "\n"
    for judged in sentences:
        sentence = judged.verdict.sentence
        stands_alone = judged.verdict.claims or owners[-1] is None or above.endswith("\n")
        owners.append(sentence.index if stands_alone else owners[-1])
        above = sentence.text
    return owners
