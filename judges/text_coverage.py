"""Determines the standing of every character in a sentence: judged, harmless, or unjudged with a kind. The default is
unjudged. A character is judged if it is part of a claim with a verdict, or of text that a document contains verbatim.
It is harmless if it is part of visible text or markup outside all claims."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

from judges.claims.json_reply import JsonReply
from judges.claims.known_text import KnownText
from judges.claims.sources.source_lists import SourceLists
from judges.text.fragments import SYMBOLS, Fragment, FragmentKind, Resolves, code_fragments, is_symbol, join_surrogates
from judges.text.link_patterns import LINK_DEFINITIONS
from judges.text.markdown import begins_paragraph, fragments
from judges.text.reference_labels import ReferenceLabels
from judges.types import ClaimVerdict, Part, Sentence, Span, Standing

CODE = "code"
JSON = "json"
SYMBOL = "symbol"

_WORDLESS = re.compile(
    r"(?P<address>(?:[a-zA-Z][a-zA-Z0-9+.-]{1,30}://|www\.|mailto:)\S+)"
    rf"|(?P<symbol>[\ud800-\udbff][\udc00-\udfff]|(?!(?<=\[)\^){SYMBOLS.pattern})"  # "[^" begins a footnote
)
_ADDRESS = re.compile(r"<?(?:[a-zA-Z][a-zA-Z0-9+.-]{1,30}:|www\.|[/#])")
"""The beginning of a link's target that is an address."""
_ADDRESS_ATTRIBUTE = re.compile(r"(?:href|src)\s*=\s*(?P<value>\"[^\"\s]*\"|'[^'\s]*'|[^\"'\s]+)", re.IGNORECASE)
_SHOWN = frozenset([FragmentKind.TEXT, FragmentKind.SYNTAX, FragmentKind.ORDINAL, FragmentKind.MARKER])
_HIDING = frozenset(
    [
        FragmentKind.STRUCK,
        FragmentKind.COMMENT,
        FragmentKind.ATTRIBUTE,
        FragmentKind.INVISIBLE,
        FragmentKind.EMPHASIS,
    ]
)
_ENDS = (".", "!", "?", ":", "…", "。", ")", "]", '"', "”", "*", "_")
"""The end of a text that doesn't continue in the next line."""
_MAX_DEFINITIONS = 64
"""The maximum number of link definitions in a row."""
_AFTER_ADDRESS = ".,;:!?)]}>\"'*_"
_DECORATION = "😊🙂😀😃😄😉😁🤗☺👋🙏🎉✨💡📌📍📝📋📄📑📚📖🔍🔎🚀💬🤝°©®™´`¨¯¸"
"""Symbols that decorate words. Without words, they may be an answer. Geometric shapes and pointing hands always may."""
_DECORATIONS = re.compile(rf"(?:[{_DECORATION}][\U0001f3fb-\U0001f3ff]?\ufe0f?(?:\u200d(?=[{_DECORATION}])|[ \t]*))+")
"""Such symbols, each with its skin tone and variation selector. They may be joined, or separated by spaces."""

_INFO_STRINGS_LISTED = (
    "bash c cmd conf console cpp csharp css csv diff dockerfile go graphql groovy html http ini java javascript "
    "js json json5 jsonc jsx kotlin latex lua makefile markdown md mermaid nginx objective-c perl php plaintext "
    "powershell properties protobuf ps1 py python python3 r regex ruby rust scala sh shell sql swift tex text "
    "toml ts tsx txt typescript vb vue xml yaml yml zsh c++ c# shell-session"
)
_INFO_STRINGS = frozenset(_INFO_STRINGS_LISTED.split())


def partition(
    sentence: Sentence,
    verdicts: Sequence[ClaimVerdict],
    changes: Sequence[Part] = (),
    *,
    known: KnownText,
    resolves: Resolves | None = None,
    json_reply: JsonReply | None = None,
) -> tuple[Part, ...]:
    """Return the parts of ``sentence`` in order, covering it without overlapping. Neighbours with the same standing and
    kind are merged.

    Args:
        sentence: a sentence of the reply.
        verdicts: the verdicts on its claims.
        changes: parts whose standing depends on other sentences of the reply, in order.
        known: the text of the documents.
        resolves: recognises citation markers, as in the extractor.
        json_reply: the reader of the JSON reply, if the sentence is a piece of one.
    """
    claims = _Claims(verdicts)
    start = sentence.span.start
    if json_reply is not None:
        found = _json_parts(sentence, claims, known, resolves, json_reply)
    else:
        found = _sentence_parts(sentence, start, claims, known, resolves)
    return tuple(_merged(_changed(found, changes) if changes else found))


@dataclass(kw_only=True)
class ReplyCoverage:
    """Determines the standing of every character in the sentences of one reply. The arguments are those of
    ``partition``."""

    known: KnownText
    resolves: Resolves | None = None
    json_reply: JsonReply | None = None
    _may_link: bool = False
    """Whether the reply so far contains a bracket; without one, there can be no link."""

    @cached_property
    def _labels(self) -> ReferenceLabels:
        return ReferenceLabels(self._text_of, self.resolves)

    @cached_property
    def _sources(self) -> SourceLists:
        return SourceLists(self._text_of, self.resolves)

    def parts(
        self,
        sentence: Sentence,
        verdicts: Sequence[ClaimVerdict],
        reply: Sequence[Sentence],
        above: Sentence | None = None,
    ) -> tuple[Part, ...]:
        """Return the parts of ``sentence``, which belongs to ``reply``. ``above`` is the sentence before it as it is
        delivered."""
        self._may_link = self._may_link or "[" in sentence.text or self.json_reply is not None
        changes = _decoration(sentence, above)
        if self._may_link and not changes:
            changes = self._changes(sentence, reply, is_claim=bool(verdicts))
        return partition(
            sentence, verdicts, changes, known=self.known, resolves=self.resolves, json_reply=self.json_reply
        )

    def _changes(self, sentence: Sentence, reply: Sequence[Sentence], *, is_claim: bool) -> Sequence[Part]:
        """Return the parts whose standing depends on other sentences of the reply. The markers of a claim
        (``is_claim``) are never harmless as sources."""
        links = self._labels.links(sentence, reply)
        sources = () if is_claim else self._sources.markers(sentence, reply)
        links = links or self._shown_definitions(sentence, reply)
        start = sentence.span.start
        if self._text_of(sentence) != sentence.text:  # positions in the text do not match the raw text
            return [_hidden(sentence.span)] if links else []
        return [_hidden(Span(start + link.start, start + link.end)) for link in links] or [
            Part(span=Span(start + source.start, start + source.end), standing=Standing.HARMLESS) for source in sources
        ]

    def _shown_definitions(self, sentence: Sentence, reply: Sequence[Sentence]) -> Sequence[Span]:
        """Return the positions of what looks like a link definition, but continues the paragraph of the sentence
        before, so that clients show it. It must not contain more than the name or address of a source."""
        text = self._text_of(sentence)
        found = LINK_DEFINITIONS.match(text) if "]:" in text else None
        if found is None or self._begins_paragraph(sentence.index, reply):
            return ()
        resolves = self.resolves
        target, above = found["target"], self._text_of(reply[sentence.index - 1])
        is_source = (
            not found["title"]
            and above.rstrip().endswith(_ENDS)
            and (_ADDRESS.match(target) or resolves is None or (not target.isdecimal() and resolves(f"[{target}]")))
        )
        return () if is_source else [Span(found.start("label"), found.end())]

    def _begins_paragraph(self, index: int, reply: Sequence[Sentence]) -> bool:
        """Return whether a link definition can begin at a sentence, because a paragraph or another definition ends
        before it."""
        for place in range(index, max(0, index - _MAX_DEFINITIONS), -1):
            above = self._text_of(reply[place - 1])
            if begins_paragraph(f"{above}\n" if above[-1:] not in "\r\n" else above, len(above) + 1, 0):
                return True
            if "]:" not in above or LINK_DEFINITIONS.fullmatch(above) is None:
                return False
        return index < _MAX_DEFINITIONS

    def _text_of(self, sentence: Sentence) -> str:
        """Return the Markdown text of a sentence or of a piece of a JSON reply; "" if it is code or has no text."""
        spoken = sentence if self.json_reply is None else self.json_reply.spoken(sentence)
        return "" if spoken is None or spoken.in_code else spoken.text


def _decoration(sentence: Sentence, above: Sentence | None) -> Sequence[Part]:
    """Return the sentence as a harmless part if it only decorates the words of ``above`` in the same line."""
    if above is None or sentence.in_code or not _DECORATIONS.fullmatch(sentence.text.strip()):
        return ()
    is_decorated = "\n" not in above.text[len(above.text.rstrip()) :] and any(map(str.isalpha, above.plain))
    return [Part(span=sentence.span, standing=Standing.HARMLESS)] if is_decorated else ()


def _hidden(span: Span) -> Part:
    return Part(span=span, standing=Standing.UNJUDGED, kind=FragmentKind.LINK.value)


def _changed(parts: Iterator[Part], changes: Sequence[Part]) -> Iterator[Part]:
    """Yield ``parts``, with ``changes`` in place of the characters that they cover."""
    place = 0
    for part in parts:
        at, end = part.span.start, part.span.end
        while at < end:
            while place < len(changes) and changes[place].span.end <= at:
                place += 1
            change = changes[place] if place < len(changes) else None
            if change is None or change.span.start >= end:
                told, stop = part, end
            elif change.span.start > at:
                told, stop = part, change.span.start
            else:
                told, stop = change, min(end, change.span.end)
            yield Part(span=Span(at, stop), standing=told.standing, kind=told.kind)
            at = stop


class _Claims:
    """The spans of a sentence's claims, and whether each has a verdict."""

    def __init__(self, verdicts: Sequence[ClaimVerdict]) -> None:
        spans = [one.claim.span for one in verdicts]
        self._edges = sorted({edge for span in spans for edge in (span.start, span.end)})
        self._reasons: list[list[str | None]] = [[] for _ in self._edges]
        """For each edge, the claims that contain the characters after it. Each claim is represented by the reason why
        it was not judged; None if it was judged."""
        for one in verdicts:
            first, last = (bisect_left(self._edges, edge) for edge in (one.claim.span.start, one.claim.span.end))
            for place in range(first, last):
                self._reasons[place].append(one.reason)

    def parts(self, start: int, end: int, outside: Standing, kind: str | None = None) -> Iterator[Part]:
        """Yield the parts of ``[start, end)``, cut wherever a claim begins or ends. Characters outside all claims get
        the standing ``outside``."""
        at, place = start, bisect_right(self._edges, start)
        while at < end:
            here = self._reasons[place - 1] if place else ()
            stop = min(end, self._edges[place]) if place < len(self._edges) else end
            place += 1
            if not here:
                yield Part(span=Span(at, stop), standing=outside, kind=kind)
            elif reason := next(filter(None, here), None):
                yield Part(span=Span(at, stop), standing=Standing.UNJUDGED, kind=reason)
            else:
                yield Part(span=Span(at, stop), standing=Standing.JUDGED)
            at = stop


_NO_CLAIMS = _Claims(())


def _sentence_parts(
    sentence: Sentence, offset: int, claims: _Claims, known: KnownText, resolves: Resolves | None
) -> Iterator[Part]:
    text = sentence.text
    if sentence.in_code or _is_code(text):
        return _code_parts(text, offset, claims, known)
    read = partial(fragments, resolves=resolves, marks=sentence.marks)
    found = list(_text_parts(text, offset, claims, known, read(text)))
    if kind := _formed_kind(text, offset, found, known, read):
        return iter([Part(span=Span(offset, offset + len(text)), standing=Standing.UNJUDGED, kind=kind)])
    return iter(found)


def _formed_kind(
    text: str, offset: int, found: Sequence[Part], known: KnownText, read: Callable[[str], Sequence[Fragment]]
) -> str | None:
    """Return the kind of unjudged markup that would form if all unjudged parts, or only the invisible characters, were
    left out; None if none would. Markup that a judge reads because clients may show it counts too if it is unjudged."""
    if all(part.standing is not Standing.UNJUDGED for part in found):
        return None
    for piece in read(text):
        if piece.kind not in _SHOWN and piece.spoken.strip():
            return piece.kind.value
    for gone in (frozenset(part.kind for part in found), frozenset([FragmentKind.INVISIBLE.value])):
        kept = [part.span for part in found if part.standing is not Standing.UNJUDGED or part.kind not in gone]
        rest = "".join(text[span.start - offset : span.end - offset] for span in kept)
        if len(rest) < len(text):
            for piece in read(rest):
                if piece.kind not in _SHOWN and not _is_quoted(rest, piece, known):
                    return piece.kind.value
    return None


def _text_parts(
    text: str, offset: int, claims: _Claims, known: KnownText, pieces: Sequence[Fragment]
) -> Iterator[Part]:
    for piece in pieces:
        start, end = offset + piece.start, offset + piece.end
        match piece.kind:
            case FragmentKind.TEXT:
                for part in claims.parts(start, end, Standing.HARMLESS):
                    if part.standing is Standing.HARMLESS:
                        yield from _wordless_parts(text, offset, part.span, known)
                    else:
                        yield part
            case FragmentKind.SYNTAX | FragmentKind.ORDINAL | FragmentKind.MARKER:
                yield from claims.parts(start, end, Standing.HARMLESS)
            case _ if _is_quoted(text, piece, known):
                yield Part(span=Span(start, end), standing=Standing.JUDGED)
            case _:
                yield Part(span=Span(start, end), standing=Standing.UNJUDGED, kind=piece.kind.value)


def _wordless_parts(text: str, offset: int, span: Span, known: KnownText) -> Iterator[Part]:
    """Yield the parts of text outside claims. Its words state nothing, but addresses and symbols may."""
    at, start, end = span.start, span.start - offset, span.end - offset
    decorates = any(map(str.isalpha, text))
    for found in _WORDLESS.finditer(text, start, end):
        if found.lastgroup == "address":
            kind, judged = FragmentKind.LINK.value, known.quotes(found[0].rstrip(_AFTER_ADDRESS))
        elif not is_symbol(character := join_surrogates(found[0])) or (decorates and character in _DECORATION):
            continue
        else:
            kind, judged = SYMBOL, known.quotes(character)
        if offset + found.start() > at:
            yield Part(span=Span(at, offset + found.start()), standing=Standing.HARMLESS)
        at = offset + found.end()
        standing = Standing.JUDGED if judged else Standing.UNJUDGED
        yield Part(span=Span(offset + found.start(), at), standing=standing, kind=None if judged else kind)
    if span.end > at:
        yield Part(span=Span(at, span.end), standing=Standing.HARMLESS)


def _code_parts(text: str, offset: int, claims: _Claims, known: KnownText) -> Iterator[Part]:
    """Yield the parts of code. Code is compared with the documents line by line."""
    for line in code_fragments(text):
        start, end = offset + line.start, offset + line.end
        code = text[line.start : line.end].strip()
        if not any(map(str.isalnum, code)) or _is_info(text, line):
            yield Part(span=Span(start, end), standing=Standing.HARMLESS)
        elif known.quotes(code.strip("`")):
            yield Part(span=Span(start, end), standing=Standing.JUDGED)
        else:
            yield from claims.parts(start, end, Standing.UNJUDGED, CODE)


def _json_parts(
    sentence: Sentence, claims: _Claims, known: KnownText, resolves: Resolves | None, json_reply: JsonReply
) -> Iterator[Part]:
    spoken = json_reply.spoken(sentence)
    if spoken is None:
        shown = json_reply.shown(sentence)
        hiding = (piece.kind for piece in fragments(f"{shown} ", resolves) if piece.kind in _HIDING) if shown else ()
        if kind := JSON if shown is None else next(iter(hiding), None):
            yield Part(span=sentence.span, standing=Standing.UNJUDGED, kind=str(kind))
            return
        harmless = json_reply.is_label(sentence)
        outside = (Standing.HARMLESS, None) if harmless else (Standing.UNJUDGED, JSON)
        yield from claims.parts(sentence.span.start, sentence.span.end, *outside)
    elif spoken.text == sentence.text:
        yield from _sentence_parts(spoken, sentence.span.start, claims, known, resolves)
    else:
        # With escapes, positions in the unescaped text do not match the raw text, so the piece has one standing.
        found = list(_sentence_parts(spoken, 0, _NO_CLAIMS, known, resolves))
        unjudged = next((part for part in found if part.standing is Standing.UNJUDGED), None)
        if unjudged is not None:
            yield Part(span=sentence.span, standing=Standing.UNJUDGED, kind=unjudged.kind)
        else:
            yield from claims.parts(sentence.span.start, sentence.span.end, Standing.HARMLESS)


def _is_quoted(text: str, piece: Fragment, known: KnownText) -> bool:
    """Return whether ``piece`` is the target or title of a link, or an attribute with an address, and a document
    contains it."""
    raw = text[piece.start : piece.end].strip()
    if piece.kind is FragmentKind.ATTRIBUTE:
        raw = found["value"] if (found := _ADDRESS_ATTRIBUTE.fullmatch(raw)) else ""
    elif piece.kind is not FragmentKind.LINK:
        return False
    elif (title := _title_at(text, piece)) is not None and (piece.start == title or not _ADDRESS.match(raw)):
        return known.is_name(raw.strip("<>\"'() "))
    return known.quotes(raw.strip("<>\"'() ").removeprefix("mailto:"))


def _title_at(text: str, piece: Fragment) -> int | None:
    """Return where the title of the link definition that contains ``piece`` begins (-1 if it has none), or None if
    ``piece`` isn't in a definition."""
    if "]:" not in text:
        return None
    return next((title for start, title, end in _definitions(text) if start <= piece.start < end), None)


@lru_cache(maxsize=8)
def _definitions(text: str) -> Sequence[tuple[int, int, int]]:
    """Return the start of each link definition in ``text``, the start of its title (or -1), and its end."""
    return [(found.start(), found.start("title"), found.end()) for found in LINK_DEFINITIONS.finditer(text)]


def _is_code(text: str) -> bool:
    """Return whether the whole sentence is inline code."""
    bare = text.strip().rstrip(".:")
    return len(bare) > 2 and bare[0] == bare[-1] == "`" and "`" not in bare.strip("`")


def _is_info(text: str, line: Fragment) -> bool:
    """Return whether the line is the language name after an opening fence."""
    before = text[max(0, line.start - 3) : line.start]
    return before in ("```", "~~~") and text[line.start : line.end].strip().lower() in _INFO_STRINGS


def _merged(parts: Iterator[Part]) -> Iterator[Part]:
    last: Part | None = None
    for part in parts:
        if last is not None and (last.standing, last.kind) == (part.standing, part.kind):
            last = Part(span=Span(last.span.start, part.span.end), standing=part.standing, kind=part.kind)
        else:
            if last is not None:
                yield last
            last = part
    if last is not None:
        yield last
