"""Which documents a reply cites: markers, source names and URLs in its text, and the upstream's own annotations.

Every pass is linear in the length of the text.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from judges.types import Chunk, Sentence, Span
from policies.citations.document_names import DocumentNames
from policies.citations.footnotes import Definitions
from policies.citations.markers import BRACKETS, Target, label_of, read_marker
from policies.types import Citation

_CODE = re.compile(
    r"```.*?(?:```|\Z)|^~~~.*?(?:^~~~|\Z)|``[^\n]*?``|`[^`\n]*`"
    r"|\\\((?:(?!\\[()])[^\n]){0,300}\\\)|\\\[(?![0-9, ]*\\\])(?:(?!\\[\[\]]).){0,600}\\\]"
    r"|\$(?=[^$\n]{0,200}[\\^_=∈]|\[[^$\n]{0,80}\]\$)[^\s$][^$\n]{0,300}(?<!\s)\$(?![0-9])",
    re.DOTALL | re.MULTILINE,
)
"""Code and formulas: what is in brackets there is no marker."""
_NAMES = ("url", "file_id", "filename", "title")
_SPACE = re.compile(r"\s")
_NO_WORDS = re.compile(
    r"[\W_]*(?:(?:sources?|see|refs?|references?|from|via|cf|quellen?|siehe|vgl|fuentes?|voir)\b[\W_]*)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """An upstream's own citation object. ``names`` are what it calls its document, the surest first; ``place`` is a
    place of the text that it is for, None where it gives none; ``marker`` is what it goes by."""

    marker: str
    names: Sequence[str]
    place: int | None


def find_citations(
    text: str,
    chunks: Sequence[Chunk] | DocumentNames,
    sentences: Sequence[Sentence] | None = None,
    annotations: Sequence[Annotation] = (),
) -> tuple[Citation, ...]:
    """The citations of a reply, in the order of their place, those of ``annotations`` last.

    Args:
        text: the reply.
        chunks: the documents as the model saw them; ``[1]`` is the first. Who asks again and again for the same ones
            passes their ``DocumentNames``.
        sentences: the sentences of ``text``, to say which of them a citation is for: that in which it stands, or that
            before it where it stands behind its full stop. None for one in a list of sources.
        annotations: what the upstream itself says that the text cites.

    A marker that can only mean a document and names none is a citation without one; any other word in brackets is none.
    """
    names = chunks if isinstance(chunks, DocumentNames) else DocumentNames(chunks)
    definitions = Definitions(text, names)
    found = _marked(text, names, definitions, [sentence.span for sentence in sentences or () if sentence.in_code])
    owners = _Sentences(text, sentences or (), [span for *_, span in found])
    listed = _Spans.of(definitions.spans)
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
    text: str, names: DocumentNames, definitions: Definitions, code: Sequence[Span]
) -> list[tuple[str, int | None, Span]]:
    """The markers of ``text``, each with its document and place, then the names between them; in order of place."""
    code = [*code, *(Span(*match.span()) for match in _CODE.finditer(text))]
    places = _Spans.of(code)
    found: list[tuple[str, int | None, Span]] = []
    for match in BRACKETS.finditer(text):
        if not places.cover(match.start()):
            span = Span(*match.span())
            found += [(marker, index, span) for marker, index in _targets(text, match, names, definitions)]
    markers = _Spans.of([*code, *(span for _, _, span in found)])
    found += [
        (text[span.start : span.end], index, span)
        for index, span in names.mentions(text)
        if not markers.cover(span.start)
    ]
    return sorted(found, key=lambda item: item[2].start)


def _targets(text: str, match: re.Match[str], names: DocumentNames, definitions: Definitions) -> Iterator[Target]:
    label = label_of(match)
    if label in definitions:
        return ((match[0], index) for index in definitions.resolve(label))
    return read_marker(text, match, names)


def reported_citations(reported: Sequence[str], chunks: Sequence[Chunk]) -> tuple[Citation, ...]:
    """What the caller reports as cited. Each counts; one that is the id, source, title or URL of a document is that
    document."""
    if not reported:
        return ()
    names = DocumentNames(chunks)
    return tuple(Citation(marker=name, document_index=names.get(name), reported=True) for name in reported)


def distinct_documents(citations: Sequence[Citation]) -> frozenset[int | str]:
    """The distinct documents cited: the index of each one given, the name of each other one that was reported."""
    return frozenset(
        citation.marker.strip() if citation.document_index is None else citation.document_index
        for citation in citations
        if citation.document_index is not None or (citation.reported and citation.marker.strip())
    )


def read_annotation(annotation: Mapping[str, Any]) -> Annotation | None:
    """An OpenAI ``url_citation`` or ``file_citation``; None for an object of another kind. Chat Completions nests it
    under its type, the Responses API does not."""
    kind = annotation.get("type")
    if not isinstance(kind, str) or not kind.endswith(("url_citation", "file_citation")):
        return None
    nested = annotation.get(kind)
    body = nested if isinstance(nested, Mapping) else annotation
    names = [name for key in _NAMES if isinstance(name := body.get(key), str) and name]
    if not names:
        return None
    place = _position(body.get("start_index"))
    # An index is that of a mark behind the text; some put a file's number there, and the first is 0.
    index = _position(body.get("index")) if place is None else None
    marker = next((name for name in names if not _SPACE.search(name)), kind)
    return Annotation(marker=marker, names=names, place=index - 1 if index else place)


def _position(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


@dataclass(frozen=True, slots=True)
class _Spans:
    """Spans to look a place up in."""

    starts: list[int]
    ends: list[int]

    @classmethod
    def of(cls, spans: Sequence[Span]) -> "_Spans":
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
        at = bisect_right(self.starts, place) - 1
        return at >= 0 and place < self.ends[at]


class _Sentences:
    """Says which sentence a citation is for. ``marks`` are the places of all citations, in order.

    A marker behind the full stop of a sentence belongs to it, though it comes after its end; so does one in brackets of
    its own.
    """

    def __init__(self, text: str, sentences: Sequence[Sentence], marks: Sequence[Span]) -> None:
        self._text = text
        self._starts = [sentence.span.start for sentence in sentences]
        self._owners: list[int | None] = []
        self._leads: list[int] = []
        """For each sentence the end of the citations that it begins with."""
        places = [mark.start for mark in marks]
        for place, sentence in enumerate(sentences):
            lead = start = sentence.span.start
            for mark in marks[bisect_left(places, start) : bisect_left(places, sentence.span.end)]:
                if not _NO_WORDS.fullmatch(text, lead, mark.start):
                    break
                lead = max(lead, mark.end)
            says_nothing = lead > start and _NO_WORDS.fullmatch(text, lead, sentence.span.end)
            self._leads.append(lead)
            self._owners.append(self._before(place) if says_nothing else sentence.index)

    def at(self, place: int) -> int | None:
        at = bisect_right(self._starts, place) - 1
        if at < 0:
            return None
        before = self._before(at) if 0 < place < self._leads[at] else None
        return self._owners[at] if before is None else before

    def _before(self, at: int) -> int | None:
        """The sentence before that at ``at``, unless a new line parts them."""
        if at == 0 or self._text[self._starts[at - 1] : self._starts[at]].endswith("\n"):
            return None
        return self._owners[at - 1]
