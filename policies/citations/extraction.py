"""Finds the documents that a reply cites through markers, source names and URLs in its text and through the upstream's
annotations. Also finds the labels that the reply defines itself, and the sentence that each citation belongs to.

Every pass is linear in the length of the text.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from msgspec import Struct

from judges.types import Chunk, Sentence, Span
from policies.citations.annotation_parsing import Annotation
from policies.citations.document_names import DocumentNames, Documents
from policies.citations.markers import BRACKETS, NAMING, MarkedDocuments, documents_named, label_of, read_marker
from policies.types import Citation


class SpanIndex(Struct, frozen=True):
    """An index of spans."""

    starts: list[int]
    ends: list[int]

    @classmethod
    def of(cls, spans: Sequence[Span]) -> "SpanIndex":
        starts: list[int] = []
        ends: list[int] = []
        for span in sorted(spans, key=lambda span: span.start):
            if ends and span.start < ends[-1]:
                ends[-1] = max(ends[-1], span.end)
            else:
                starts.append(span.start)
                ends.append(span.end)
        return cls(starts, ends)

    def cover(self, place: int) -> bool:
        """Return whether ``place`` is inside one of the spans."""
        at = bisect_right(self.starts, place) - 1
        return at >= 0 and place < self.ends[at]

    def meet(self, span: Span) -> bool:
        """Return whether ``span`` and one of the spans overlap."""
        at = bisect_left(self.starts, span.end) - 1
        return at >= 0 and span.start < self.ends[at]


_NO_WORDS = re.compile(
    r"[\W_]*(?:(?:sources?|see|refs?|references?|from|via|cf|quellen?|siehe|vgl|fuentes?|voir)\b[\W_]*)?", re.IGNORECASE
)


class CitedSentences:
    """Assigns citations to sentences. ``marks`` are the spans of all citations, in order.

    A marker after a sentence's full stop belongs to that sentence, even if it is followed by another sentence or forms
    a sentence by itself.
    """

    def __init__(self, text: str, sentences: Sequence[Sentence], marks: Sequence[Span]) -> None:
        self._text = text
        self._starts = [sentence.span.start for sentence in sentences]
        self._owners: list[int | None] = []
        self._leads: list[int] = []
        """For each sentence, the position where the citations at its beginning end."""
        places = [mark.start for mark in marks]
        for place, sentence in enumerate(sentences):
            lead = start = sentence.span.start
            for mark in marks[bisect_left(places, start) : bisect_left(places, sentence.span.end)]:
                if not _NO_WORDS.fullmatch(text, lead, mark.start):
                    break
                lead = max(lead, mark.end)
            is_citation_only = lead > start and _NO_WORDS.fullmatch(text, lead, sentence.span.end)
            self._leads.append(lead)
            self._owners.append(self._before(place) if is_citation_only else sentence.index)

    def at(self, place: int) -> int | None:
        """Return the index of the sentence that a citation at ``place`` belongs to, or None."""
        at = bisect_right(self._starts, place) - 1
        if at < 0:
            return None
        before = self._before(at) if 0 < place < self._leads[at] else None
        return self._owners[at] if before is None else before

    def _before(self, at: int) -> int | None:
        """Return the sentence before the one at ``at``, or None if there is a line break between them."""
        if at == 0 or self._text[self._starts[at - 1] : self._starts[at]].endswith("\n"):
            return None
        return self._owners[at - 1]


_DEFINITION = re.compile(
    r"^[ \t]{0,3}(?:[-*+][ \t]+)?\[(?P<label>\^?[\w.-]{1,40})\](?P<colon>:?)[ \t]+(?P<text>\S.*)$", re.MULTILINE
)
_NUMBERED = re.compile(r"^[ \t]{0,3}(?P<label>[0-9]{1,3})[.)][ \t]+(?P<text>\S.*)$", re.MULTILINE)
_SECTION = re.compile(
    r"^[#>*_ \t]{0,12}(?:sources?|references?|bibliography|citations?|works cited|quellen?|quellenangaben|literatur"
    r"|références?|bibliographie|fuentes?|referencias|bibliografía)[*_\s]*[:：]?[*_ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_SEARCHED_AT_ONCE = 50_000
"""The text is searched in pieces of about this many characters, so that other threads can run in between."""
_QUOTES = "*_\"“”„'’<>.,; \t"
_SHORT_LEAD = 3


class FootnoteDefinitions:
    """The labels that ``text`` defines (``[^1]: faq.pdf``, ``[2] https://…``, or the numbers in its list of sources). A
    defined label refers to the documents named in its definition, regardless of the order of the documents.
    """

    def __init__(self, text: str, names: DocumentNames) -> None:
        self._targets: dict[str, Documents] = {}
        self.spans: list[Span] = []
        """The places where sources are listed rather than cited."""
        for match in _DEFINITION.finditer(text) if "[" in text else ():
            documents = _defined(match["text"], names, anywhere=bool(match["colon"]))
            if documents or match["colon"]:  # Any other match is just a line that begins with a marker.
                self._define(match, documents)
        section, start = None, 0
        while section is None and start < len(text):
            end = text.find("\n", start + _SEARCHED_AT_ONCE)
            end = len(text) if end < 0 else end
            section, start = _SECTION.search(text, start, end), end
        if section is not None:
            for match in _NUMBERED.finditer(text, section.end()):
                if documents := _defined(match["text"], names):
                    self._define(match, documents)
            self.spans.append(Span(section.start(), len(text)))

    def _define(self, match: re.Match[str], documents: Documents) -> None:
        self.spans.append(Span(*match.span()))
        self._targets.setdefault(match["label"].casefold(), documents)

    def __contains__(self, label: str) -> bool:
        return label.casefold() in self._targets

    def resolve(self, label: str) -> Documents:
        """Return the documents that a defined label refers to. If the definition is a remark that names no document,
        there are none."""
        return self._targets[label.casefold()]


def _defined(text: str, names: DocumentNames, *, anywhere: bool = False) -> Documents:
    """Return the documents that have all the names in a line. The line must begin with a name, unless ``anywhere`` is
    set."""
    if named := names.get(text.strip(_QUOTES)):
        return named
    mentions = list(names.mentions(text))
    if not mentions or not (anywhere or mentions[0][1].start <= _SHORT_LEAD):
        return ()
    common = set(mentions[0][0]).intersection(*(documents for documents, _ in mentions))
    return tuple(sorted(common))


_CODE = re.compile(
    r"```.*?(?:```|\Z)|^~~~.*?(?:^~~~|\Z)|``[^\n]*?``|`[^`\n]*`"
    r"|\\\((?:(?!\\[()])[^\n]){0,300}\\\)|\\\[(?![0-9, ]*\\\])(?:(?!\\[\[\]]).){0,600}\\\]"
    r"|\$(?=[^$\n]{0,200}[\\^_=∈]|\[[^$\n]{0,80}\]\$)[^\s$][^$\n]{0,300}(?<!\s)\$(?![0-9])",
    re.DOTALL | re.MULTILINE,
)
"""Code and formulas, in which brackets are not markers."""
_MAY_BE_CODE = re.compile(r"[`~\\$]")
_BRACKET = re.compile(r"[\[【［({（〔⟨<]")
"""Every bracket that a match of ``BRACKETS`` or ``NAMING`` can begin with."""


def find_citations(
    text: str,
    chunks: Sequence[Chunk] | DocumentNames,
    sentences: Sequence[Sentence] | None = None,
    annotations: Sequence[Annotation] = (),
) -> tuple[Citation, ...]:
    """Return the citations in a reply in text order, followed by those in ``annotations``.

    Args:
        text: the reply.
        chunks: the documents as the model saw them; ``[1]`` is the first. Pass their ``DocumentNames`` to reuse them
            for several texts.
        sentences: the sentences of ``text``. A citation is assigned to the sentence that contains it, or to the
            preceding sentence if it follows that sentence's full stop. Citations in a list of sources are assigned to
            no sentence.
        annotations: the upstream's own citations.

    A marker that can only refer to a document but matches none in the request is a citation without a document. Other
    text in brackets is not a citation.
    """
    names = chunks if isinstance(chunks, DocumentNames) else DocumentNames(chunks)
    if not annotations and not _may_cite(text, names):
        return ()
    definitions = FootnoteDefinitions(text, names)
    found = _marked(text, names, definitions, [sentence.span for sentence in sentences or () if sentence.in_code])
    if not found and not annotations:
        return ()
    owners = CitedSentences(text, sentences or (), [span for *_, span in found])
    listed = SpanIndex.of(definitions.spans)
    citations = [
        Citation(
            marker=marker,
            document_index=next(iter(documents), None),
            other_documents=documents[1:],
            sentence_index=None if listed.cover(span.start) else owners.at(span.start),
            span=span,
        )
        for marker, documents, span in found
    ]
    for annotation in annotations:
        documents = names.first_named(annotation.names)
        citations.append(
            Citation(
                marker=annotation.marker,
                document_index=next(iter(documents), None),
                other_documents=documents[1:],
                sentence_index=None if annotation.place is None else owners.at(annotation.place),
                span=None if annotation.place is None else Span(annotation.place, annotation.place),
            )
        )
    return tuple(citations)


def _may_cite(text: str, names: DocumentNames) -> bool:
    """Return whether ``text`` has a bracket or mentions a document. Most sentences do neither."""
    return _BRACKET.search(text) is not None or next(names.mentions(text), None) is not None


def _marked(
    text: str, names: DocumentNames, definitions: FootnoteDefinitions, code: Sequence[Span]
) -> list[tuple[str, Documents, Span]]:
    """Return the markers and document names in ``text``, each with its documents and span, in text order."""
    if _MAY_BE_CODE.search(text):
        code = [*code, *(Span(*match.span()) for match in _CODE.finditer(text) if not _is_name(match[0], names))]
    places = SpanIndex.of(code)
    found: list[tuple[str, Documents, Span]] = []
    for match in BRACKETS.finditer(text):
        if not places.cover(match.start()):
            span = Span(*match.span())
            found += [(marker, documents, span) for marker, documents in _targets(text, match, names, definitions)]
    markers = SpanIndex.of([*code, *(span for _, _, span in found)])
    found += [
        (text[span.start : span.end], documents, span)
        for documents, span in names.mentions(text)
        if not markers.cover(span.start)
    ]
    markers = SpanIndex.of([*code, *(span for _, _, span in found)])
    for match in NAMING.finditer(text):
        taken = markers.meet(Span(*match.span("named"))) or text.endswith("]", 0, match.start())
        if not taken:
            found += [(match[0], documents, Span(*match.span())) for documents in documents_named(match[0], names)]
    return sorted(found, key=lambda item: item[2].start)


def _is_name(code: str, names: DocumentNames) -> bool:
    """Return whether inline code consists only of a document's name."""
    name = code.strip("`")
    return "\n" not in name and any(span == Span(0, len(name)) for _, span in names.mentions(name))


def _targets(
    text: str, match: re.Match[str], names: DocumentNames, definitions: FootnoteDefinitions
) -> Iterator[MarkedDocuments]:
    label = label_of(match)
    if label in definitions:
        documents = definitions.resolve(label)
        return iter([(match[0], documents)] if documents else [])
    return read_marker(text, match, names)


def reported_citations(reported: Sequence[str], chunks: Sequence[Chunk]) -> tuple[Citation, ...]:
    """Convert the citations that the caller reports. All of them count. Each is an id, source, title or URL, and refers
    to the first document that has it."""
    if not reported:
        return ()
    names = DocumentNames(chunks)
    return tuple(
        Citation(marker=name, document_index=next(iter(names.get(name)), None), reported=True) for name in reported
    )


def distinct_documents(citations: Sequence[Citation]) -> frozenset[int | str]:
    """Return the distinct documents cited: indices for documents in the request, and names for other documents that the
    caller reports."""
    return frozenset(
        citation.marker.strip() if citation.document_index is None else citation.document_index
        for citation in citations
        if citation.document_index is not None or (citation.reported and citation.marker.strip())
    )
