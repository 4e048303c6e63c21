"""Which documents a reply cites: markers, source names and URLs in its text, and the upstream's own annotations.

Every pass is linear in the length of the text.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from judges.types import Chunk, Sentence, Span
from policies.names import DocumentNames
from policies.types import Citation

_BRACKETS = re.compile(r"\[(?P<square>[^\[\]\n]{1,200})\]|【(?P<lens>[^【】\n]{1,200})】")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_SEPARATOR = re.compile(r"[,;，、；]")
_NUMBER = re.compile(r"\^?(?:(?:doc|document|source|ref|reference)\.?[ #]*)?([0-9]{1,4})", re.IGNORECASE)
_RANGE = re.compile(r"([0-9]{1,3})\s?[-–]\s?([0-9]{1,3})")
_LENS = re.compile(r"(?:(?P<message>[0-9]{1,4}):)?(?P<number>[0-9]{1,4})(?:†(?P<name>.*))?", re.DOTALL)
_LARGEST_MARKER = 999
"""A larger number in brackets is a year or an issue rather than a marker, unless there are that many documents."""


def find_citations(
    text: str,
    chunks: Sequence[Chunk] | DocumentNames,
    sentences: Sequence[Sentence] | None = None,
    annotations: Sequence[Mapping[str, Any]] = (),
) -> tuple[Citation, ...]:
    """The citations of a reply, in the order of their place, those of ``annotations`` last.

    Args:
        text: the reply.
        chunks: the documents as the model saw them; ``[1]`` is the first. Who asks again and again for the same ones
            passes their ``DocumentNames``.
        sentences: the sentences of ``text``, to say in which of them a citation stands.
        annotations: OpenAI's ``url_citation`` and ``file_citation`` objects, of either API.

    A number in brackets that names no document is a citation without one; any other word in brackets is none.
    """
    names = chunks if isinstance(chunks, DocumentNames) else DocumentNames(chunks)
    code = [Span(*match.span()) for match in _CODE.finditer(text)]
    code += [sentence.span for sentence in sentences or () if sentence.in_code]
    places = _Spans.of(code)
    found: list[tuple[str, int | None, Span]] = []
    for match in _BRACKETS.finditer(text):
        if not places.cover(match.start()):
            span = Span(*match.span())
            found += [(marker, index, span) for marker, index in _bracketed(match, names)]
    markers = _Spans.of([*code, *(span for _, _, span in found)])
    found += [
        (text[span.start : span.end], index, span)
        for index, span in names.mentions(text)
        if not markers.cover(span.start)
    ]
    found.sort(key=lambda item: item[2].start)
    where = _Sentences.of(sentences or ())
    citations = [
        Citation(marker=marker, document_index=index, sentence_index=where.at(span.start), span=span)
        for marker, index, span in found
    ]
    citations += (citation for annotation in annotations for citation in _annotation(annotation, names, where))
    return tuple(citations)


def reported_citations(reported: Sequence[str], chunks: Sequence[Chunk]) -> tuple[Citation, ...]:
    """What the caller reports as cited. Each counts; one that is the id, source, title or URL of a document is that
    document."""
    names = DocumentNames(chunks)
    return tuple(Citation(marker=name, document_index=names.get(name), reported=True) for name in reported)


def distinct_documents(citations: Sequence[Citation]) -> frozenset[int | str]:
    """The distinct documents cited: the index of each one given, the name of each other one that was reported."""
    return frozenset(
        citation.marker.strip() if citation.document_index is None else citation.document_index
        for citation in citations
        if citation.document_index is not None or (citation.reported and citation.marker.strip())
    )


def _bracketed(match: re.Match[str], names: DocumentNames) -> Iterator[tuple[str, int | None]]:
    whole = match[0]
    if (lens := match["lens"]) is not None:
        yield whole, _of_lens(lens, names)
        return
    content = match["square"].strip()
    if (index := names.get(content)) is not None and not content.isdecimal():
        yield whole, index
        return
    parts = [part.strip() for part in _SEPARATOR.split(content)]
    if len(parts) > 1 and "0" in parts:
        return  # an interval: markers count from one
    yield from _listed(parts, names)


def _listed(parts: Sequence[str], names: DocumentNames) -> Iterator[tuple[str, int | None]]:
    """The citations of a list such as ``1, 3-5`` or ``faq, 2`` or ``4, p. 17``: up to the first part that is none."""
    for part in parts:
        if (several := _RANGE.fullmatch(part)) and 0 < int(several[1]) < int(several[2]) <= names.count:
            for position in range(int(several[1]), int(several[2]) + 1):
                yield f"[{position}]", position - 1
        elif not part.isdecimal() and (index := names.get(part)) is not None:
            yield f"[{part}]", index
        elif number := _NUMBER.fullmatch(part):
            index = names.numbered(int(number[1]))
            index = names.get(part) if index is None else index
            if index is None and int(number[1]) > _LARGEST_MARKER:
                return
            yield f"[{part}]", index
        else:
            return


def _of_lens(content: str, names: DocumentNames) -> int | None:
    """The document of ``4†source``, ``1:0†name`` (message and result, the result from zero), an id or a number."""
    match = _LENS.fullmatch(content.strip())
    if match is None:
        return names.get(content)
    name = (match["name"] or "").strip()
    index = names.get(name) if name else None
    if index is not None or (match["message"] and name.casefold() not in ("", "source")):
        return index
    number = int(match["number"])
    index = names.numbered(number + 1 if match["message"] else number)
    return names.get(content) if index is None else index


def _annotation(annotation: Mapping[str, Any], names: DocumentNames, where: "_Sentences") -> Iterator[Citation]:
    """Chat Completions nests the citation under its type, the Responses API does not."""
    kind = annotation.get("type")
    if not isinstance(kind, str) or not kind.endswith(("url_citation", "file_citation")):
        return
    nested = annotation.get(kind)
    body = nested if isinstance(nested, Mapping) else annotation
    given = [body.get(key) for key in ("url", "file_id", "filename", "title")]
    cited = [name for name in given if isinstance(name, str) and name]
    index = next((index for name in cited if (index := names.get(name)) is not None), None)
    start = _position(body.get("start_index", body.get("index")))
    end = _position(body.get("end_index"))
    span = None if start is None else Span(start, start if end is None else max(start, end))
    if cited:
        yield Citation(
            marker=cited[0],
            document_index=index,
            sentence_index=None if span is None else where.at(span.start),
            span=span,
        )


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


@dataclass(frozen=True, slots=True)
class _Sentences:
    starts: list[int]
    indices: list[int]

    @classmethod
    def of(cls, sentences: Sequence[Sentence]) -> "_Sentences":
        return cls([sentence.span.start for sentence in sentences], [sentence.index for sentence in sentences])

    def at(self, place: int) -> int | None:
        at = bisect_right(self.starts, place) - 1
        return self.indices[at] if at >= 0 else None
