"""Assigns the citations of a reply to its sentences."""

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


def cite_reply(entries: Sequence[JudgedSentence], text: str, names: DocumentNames) -> None:
    """Assign the citations of a whole reply, now that all of it is known: a marker after a full stop, a footnote, a
    list of sources. ``text`` is the delivered text of the sentences of ``entries``."""
    shown = [(entry, entry.offset) for entry in entries if entry.offset is not None]
    ends = [offset for _, offset in shown[1:]] + [len(text)] * bool(shown)
    sentences = [
        replace(entry.verdict.sentence, span=Span(offset, end))
        for (entry, offset), end in zip(shown, ends, strict=True)
    ]
    cited: dict[int, list[Citation]] = {}
    for citation in find_citations(text, names, sentences):
        index = citation.sentence_index
        if index is None and citation.span is not None:  # listed, not cited: its place decides
            index = next((s.index for s in reversed(sentences) if s.span.start <= citation.span.start), None)
        if index is not None:
            cited.setdefault(index, []).append(citation)
    for entry, _ in shown:
        entry.citations = cited.get(entry.verdict.sentence.index, [])


def cited_by_upstream(
    cited: Sequence[UpstreamCitation], entries: Sequence[JudgedSentence], names: DocumentNames, positions: Sequence[int]
) -> list[Citation]:
    """The upstream's own citations; one before the first sentence is ignored. ``positions`` says where in the request
    each document was."""
    found: list[Citation] = []
    for one in cited:
        index = next((i for name in one.names if (i := names.get(name)) is not None), None)
        if one.document in positions:
            index = positions.index(one.document)
        sentence = None if one.place is None else _sentence_at(entries, one.place)
        if one.place is None or sentence is not None:
            found.append(
                Citation(marker=one.marker, document_index=index, sentence_index=sentence, reported=one.unreadable)
            )
    return found


def _sentence_at(entries: Sequence[JudgedSentence], place: int) -> int | None:
    """The sentence that a marker at ``place`` belongs to: the one there, or if that makes no claim, the one before it
    in its paragraph."""
    before = [entry for entry in entries if entry.verdict.sentence.span.start <= place]
    while len(before) > 1 and not before[-1].verdict.claims and not before[-2].verdict.sentence.text.endswith("\n"):
        before.pop()
    return before[-1].verdict.sentence.index if before else None
