"""Finds the documents that a reply cites, by markers, source names and URLs in its text, and by the upstream's
annotations.

Every pass is linear in the length of the text.
"""

import re
from collections.abc import Iterator, Sequence

from judges.types import Chunk, Sentence, Span
from policies.citations.annotations import Annotation
from policies.citations.cited_sentence import CitedSentences
from policies.citations.document_names import DocumentNames
from policies.citations.footnotes import FootnoteDefinitions
from policies.citations.markers import BRACKETS, MarkedDocument, label_of, read_marker
from policies.citations.span_index import SpanIndex
from policies.types import Citation

_CODE = re.compile(
    r"```.*?(?:```|\Z)|^~~~.*?(?:^~~~|\Z)|``[^\n]*?``|`[^`\n]*`"
    r"|\\\((?:(?!\\[()])[^\n]){0,300}\\\)|\\\[(?![0-9, ]*\\\])(?:(?!\\[\[\]]).){0,600}\\\]"
    r"|\$(?=[^$\n]{0,200}[\\^_=∈]|\[[^$\n]{0,80}\]\$)[^\s$][^$\n]{0,300}(?<!\s)\$(?![0-9])",
    re.DOTALL | re.MULTILINE,
)
"""Code and formulas, in which brackets are not markers."""


def find_citations(
    text: str,
    chunks: Sequence[Chunk] | DocumentNames,
    sentences: Sequence[Sentence] | None = None,
    annotations: Sequence[Annotation] = (),
) -> tuple[Citation, ...]:
    """Find the citations in a reply. They are in text order, followed by those in ``annotations``.

    Args:
        text: the reply.
        chunks: the documents as the model saw them; ``[1]`` is the first. Pass their ``DocumentNames`` to reuse them
            for several texts.
        sentences: the sentences of ``text``. A citation is assigned to the sentence it is in, or to the one before it
            if it follows its full stop; one in a list of sources is assigned to none.
        annotations: the upstream's own citations.

    A marker that can only refer to a document, but matches no document in the request, is a citation without a
    document. Other text in brackets is not a citation.
    """
    names = chunks if isinstance(chunks, DocumentNames) else DocumentNames(chunks)
    definitions = FootnoteDefinitions(text, names)
    found = _marked(text, names, definitions, [sentence.span for sentence in sentences or () if sentence.in_code])
    owners = CitedSentences(text, sentences or (), [span for *_, span in found])
    listed = SpanIndex.of(definitions.spans)
    citations = [
        Citation(
            marker=marker,
            document_index=index,
            sentence_index=None if listed.cover(span.start) else owners.at(span.start),
            span=span,
        )
        for marker, index, span in found
    ]
    citations += (
        Citation(
            marker=annotation.marker,
            document_index=next((i for name in annotation.names if (i := names.get(name)) is not None), None),
            sentence_index=None if annotation.place is None else owners.at(annotation.place),
            span=None if annotation.place is None else Span(annotation.place, annotation.place),
        )
        for annotation in annotations
    )
    return tuple(citations)


def _marked(
    text: str, names: DocumentNames, definitions: FootnoteDefinitions, code: Sequence[Span]
) -> list[tuple[str, int | None, Span]]:
    """Yield the markers and document names in ``text``, each with its document and span, in text order."""
    code = [*code, *(Span(*match.span()) for match in _CODE.finditer(text))]
    places = SpanIndex.of(code)
    found: list[tuple[str, int | None, Span]] = []
    for match in BRACKETS.finditer(text):
        if not places.cover(match.start()):
            span = Span(*match.span())
            found += [(marker, index, span) for marker, index in _targets(text, match, names, definitions)]
    markers = SpanIndex.of([*code, *(span for _, _, span in found)])
    found += [
        (text[span.start : span.end], index, span)
        for index, span in names.mentions(text)
        if not markers.cover(span.start)
    ]
    return sorted(found, key=lambda item: item[2].start)


def _targets(
    text: str, match: re.Match[str], names: DocumentNames, definitions: FootnoteDefinitions
) -> Iterator[MarkedDocument]:
    label = label_of(match)
    if label in definitions:
        return ((match[0], index) for index in definitions.resolve(label))
    return read_marker(text, match, names)


def reported_citations(reported: Sequence[str], chunks: Sequence[Chunk]) -> tuple[Citation, ...]:
    """Convert the citations that the caller reports. Each one counts; a document's id, source, title or URL refers to
    that document."""
    if not reported:
        return ()
    names = DocumentNames(chunks)
    return tuple(Citation(marker=name, document_index=names.get(name), reported=True) for name in reported)


def distinct_documents(citations: Sequence[Citation]) -> frozenset[int | str]:
    """Return the distinct documents cited: indices for the request's documents, and names for other documents that the
    caller reports."""
    return frozenset(
        citation.marker.strip() if citation.document_index is None else citation.document_index
        for citation in citations
        if citation.document_index is not None or (citation.reported and citation.marker.strip())
    )
