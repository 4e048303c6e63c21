"""Parses Markdown and HTML into fragments that account for every character.

``fragments`` tiles a text: each fragment has a kind and the text that a judge reads instead. So everything that is
delivered but not judged has a name: a link's target, an attribute, a comment.
"""

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

_NAMED = r"(?:[Dd]oc(?:ument)?|[Ss]ource|[Rr]ef(?:erence)?|[Cc]hunk|[Qq]uelle|[Dd]okument|[Ff]uente)s?"
CITATION: Final = re.compile(
    rf"\[\[?\^?(?:{_NAMED}[ :#_-]{{0,2}})?\d{{1,3}}(?:[ ,;–†-]{{1,2}}\^?\d{{1,3}}){{0,8}}\]?\]"
    rf"|\[{_NAMED}: ?[^\[\]\n]{{1,60}}\]"
    r"|【[^【】\n]{1,60}】"
)
"""Text that looks like a citation marker: ``[1]``, ``[^2]``, ``[3, 4]``, ``[doc 5]``, ``【6†source】``."""

ROW: Final = re.compile(r"\s*\|")
HEADING: Final = re.compile(r"\s*#{1,6}(?:[ \t]|\Z)")
ITEM: Final = re.compile(
    r"\s*(?:>\s?){0,8}(?:[-*+•◦‣▪–—]|\d{1,3}\.|\(?(?:\d{1,3}|[A-Za-z])\))[ \t]+(?:\[[ xX]\][ \t]+)?"
)

_BLOCK = re.compile(rf"(?:\s*>){{0,8}}(?:\s*#{{1,6}}[ \t]+|{ITEM.pattern})?(?:\s*\Z)?")
_ITEM_NUMBER = re.compile(r"\d{1,3}|[A-Za-z](?=\))")
_RULE = re.compile(r"\s*(?:[-_*=]\s*){3,}\Z")
_DEFINITION = re.compile(
    r"\s{0,20}(?P<label>\[\^?[^\[\]\n]{1,60}\]):[ \t]{0,20}"
    r"(?P<target><[^<>\s]{1,1000}>|[^\s<>]{0,200}[./:#][^\s<>]{0,1000})"
    r"(?P<title>[ \t]{1,20}(?:\"[^\"\n]{0,300}\"|'[^'\n]{0,300}'|\([^()\n]{0,300}\)))?\s*\Z"
)
_TARGET = r"<?[^()\s<>]{0,1000}(?:\([^()\s]{0,200}\)[^()\s]{0,200})?>?"
_TITLE = r"\s{1,20}(?:\"[^\"]{0,300}\"|'[^']{0,300}')"
_DESTINATION = re.compile(rf"\((?P<target>{_TARGET})(?P<title>{_TITLE})?\s{{0,20}}\)")
_TOKEN = re.compile(
    r"(?P<comment><!--)"
    r"|(?P<code>(?P<ticks>`{1,3})(?P<literal>[^`]{1,1000})(?P=ticks))"
    rf"|(?P<cite>{CITATION.pattern})"
    r"|(?P<open>!?\[(?P<label>[^\[\]]{0,500})\])(?=\(|\[[^\[\]]{0,100}\])"
    r"|(?P<bracket>[(\[［【][^()\[\]［］【】\n]{1,120}[)\]］】])"
    r"|(?P<note><sup>\[?\d{1,3}\]?</sup>)"
    r"|<(?P<auto>(?:https?://|mailto:)[^<>\s]{1,1000})>"
    r"|(?P<tag></?(?P<name>[a-zA-Z][a-zA-Z0-9]{0,15})(?P<attributes>(?:\s[^<>]{0,1000}|/)?)>)"
    r"|\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<entity>&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});)"
    r"|(?P<quote>\n[ \t]{0,8}(?:>[ \t]?){1,8})"
    r"|(?P<marks>\*+|_+|~~)"
)
_MARKED = re.compile(r"[`*_~<\\\[(【［&]|\n[ \t]{0,8}>")
"""A character that every token of inline Markdown has, and most sentences lack."""
_DELIMITER = re.compile(r"\s*:?-+:?\s*\Z")
_CELL = re.compile(r"(?<!\\)\|")
_FENCE = re.compile(r"^[ \t>]*(?P<marks>`{3,}|~{3,})(?P<info>[^\n]*)$", re.MULTILINE)

_TAGS_LISTED = (
    "a abbr address article aside b blockquote body br button caption center cite code col colgroup dd del "
    "details dfn div dl dt em figcaption figure font footer form h1 h2 h3 h4 h5 h6 head header hr html i iframe "
    "img input ins kbd label li link main mark meta nav ol option p picture pre q rp rt ruby s samp script "
    "section select small source span strike strong style sub summary sup svg table tbody td textarea tfoot th "
    "thead time title tr tt u ul var video wbr"
)
_TAGS: Final = frozenset(_TAGS_LISTED.split())
"""Elements of HTML. Any other name in angle brackets is text."""
_INLINE_TAGS_LISTED = (
    "a abbr b cite code del dfn em font i ins kbd label mark q rp rt ruby s samp small span strike strong time tt "
    "u var wbr"
)
_INLINE_TAGS: Final = frozenset(_INLINE_TAGS_LISTED.split())
"""Elements that may be inside a word; all others separate words."""

_FORMAT = re.compile(
    "[\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]+"
)
"""Invisible characters: format and control characters, fillers, variation selectors, tags."""
_JOINERS: Final = frozenset("\u200c\u200d")
_JOINED_SCRIPTS = re.compile("[\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\ufb50-\ufdff\ufe70-\ufeff]")
"""Scripts that need joiners and non-joiners: Arabic, those of India, Tibetan, Khmer, Mongolian."""


class FragmentKind(StrEnum):
    """The kind of a fragment. All kinds except ``TEXT`` and ``SYNTAX`` may contain something that a judge does not
    read."""

    TEXT = "text"
    SYNTAX = "syntax"
    """White space and markup."""
    ORDINAL = "ordinal"
    """The number of a list item."""
    MARKER = "marker"
    """A citation marker that names a document, or may do so."""
    STRAY_MARKER = "stray_marker"
    """A citation marker that names none of the documents."""
    LINK = "link"
    """A link's target or title."""
    ATTRIBUTE = "attribute"
    """The attributes of an HTML element."""
    COMMENT = "comment"
    INVISIBLE = "invisible"


class Fragment(Struct, frozen=True, array_like=True, gc=False):
    """The characters ``[start, end)`` of a text; ``spoken`` is the text that a judge reads instead."""

    start: int
    end: int
    kind: FragmentKind
    spoken: str = ""


Resolves = Callable[[str], bool]
"""Whether a bracketed text, including its brackets, is a citation marker that names one of the documents."""


def fragments(text: str, resolves: Resolves | None = None) -> list[Fragment]:
    """The fragments of a sentence or block of Markdown; they tile it.

    ``resolves`` distinguishes citation markers from other brackets. Without it, everything that looks like a marker is
    one, as in a document, whose markers cite other texts.
    """
    if ROW.match(text):
        return list(_row(text, resolves))
    if _RULE.match(text):
        return [Fragment(0, len(text), FragmentKind.SYNTAX)]
    if text.lstrip()[:1] == "[" and (found := _DEFINITION.match(text)):
        return list(_definition(text, found, resolves))
    block = _BLOCK.match(text)
    start = block.end() if block else 0
    return [*_block(text, start), *_inline(text, start, len(text), resolves)]


def code_fragments(text: str, *, info: bool = True) -> list[Fragment]:
    """The fragments of a fenced block: the fences are syntax except for the info string, and each line of code is text.
    ``info``: whether a judge reads the info string."""
    found: list[Fragment] = []
    at = 0
    for fence in _FENCE.finditer(text):
        found += _lines(text, at, fence.start())
        found.append(Fragment(fence.start(), fence.end("marks"), FragmentKind.SYNTAX))
        if fence["info"]:
            found.append(Fragment(*fence.span("info"), FragmentKind.TEXT, fence["info"] if info else ""))
        at = fence.end()
    return [*found, *_lines(text, at, len(text))]


def spoken(parts: Iterable[Fragment]) -> str:
    """The text of ``parts`` that a judge reads, white space collapsed."""
    return " ".join("".join(part.spoken for part in parts).split())


def cell_fragments(text: str, parts: Sequence[Fragment]) -> list[list[Fragment]]:
    """The fragments of each cell of a table row."""
    cells: list[list[Fragment]] = [[]]
    for part in parts:
        if part.kind is FragmentKind.SYNTAX and text[part.start] == "|":
            cells.append([])
        else:
            cells[-1].append(part)
    return cells


def _row(text: str, resolves: Resolves | None) -> Iterator[Fragment]:
    at = 0
    for mark in [*_CELL.finditer(text), None]:
        end = mark.start() if mark else len(text)
        if _DELIMITER.match(text[at:end]) or text[at:end].isspace():
            if end > at:
                yield Fragment(at, end, FragmentKind.SYNTAX)
        else:
            yield from _inline(text, at, end, resolves)
        if mark:
            yield Fragment(end, mark.end(), FragmentKind.SYNTAX, " ")
            at = mark.end()


def _definition(text: str, found: re.Match[str], resolves: Resolves | None) -> Iterator[Fragment]:
    """``[1]: https://… "Title"``: the definition of a marker or link reference."""
    start, end = found.span("label")
    yield from _gap(0, start)
    label = found["label"]
    known = resolves is None or resolves(label)
    kind = (
        FragmentKind.MARKER
        if known
        else FragmentKind.STRAY_MARKER
        if label.strip("[]^").isdecimal()
        else FragmentKind.TEXT
    )
    yield Fragment(start, end, kind, label if kind is FragmentKind.TEXT else "")
    yield from _gap(end, found.start("target"))
    yield Fragment(*found.span("target"), FragmentKind.LINK)
    after = found.end("target")
    if found["title"]:
        yield Fragment(*found.span("title"), FragmentKind.LINK)
        after = found.end("title")
    yield from _gap(after, len(text))


def _block(text: str, end: int) -> Iterator[Fragment]:
    """The prefix of a block: quotation marks, hashes, a bullet or a number."""
    number = _ITEM_NUMBER.search(text, 0, end)
    if number is None:
        yield from _gap(0, end)
        return
    yield from _gap(0, number.start())
    yield Fragment(number.start(), number.end(), FragmentKind.ORDINAL)
    yield from _gap(number.end(), end)


def _gap(start: int, end: int) -> Iterator[Fragment]:
    if end > start:
        yield Fragment(start, end, FragmentKind.SYNTAX)


def _lines(text: str, start: int, end: int) -> Iterator[Fragment]:
    while start < end:
        stop = text.find("\n", start, end) + 1 or end
        line = text[start:stop]
        yield Fragment(start, stop, FragmentKind.TEXT if line.strip() else FragmentKind.SYNTAX, _join_surrogates(line))
        start = stop


def _inline(text: str, start: int, end: int, resolves: Resolves | None) -> Iterator[Fragment]:
    """The fragments of inline Markdown in ``text[start:end]``."""
    if not _MARKED.search(text, start, end):
        yield from _run(text, start, end)
        return
    at = search = start
    while (found := _TOKEN.search(text, search, end)) is not None:
        made = _token(text, found, end, resolves)
        if made is None:  # not markup
            search = found.start() + 1
            continue
        if found.lastgroup in ("cite", "bracket", "note") and made[-1].kind in (
            FragmentKind.MARKER,
            FragmentKind.STRAY_MARKER,
        ):
            # The space before a marker belongs to it.
            before = found.start() - (text[found.start() - 1 : found.start()] in (" ", "\t") and found.start() > at)
            yield from _run(text, at, before)
            yield from _gap(before, found.start())
        else:
            yield from _run(text, at, found.start())
        yield from made
        at = search = made[-1].end
    yield from _run(text, at, end)


def _token(text: str, found: re.Match[str], end: int, resolves: Resolves | None) -> list[Fragment] | None:
    """The fragments of a token; None if it is text."""
    start, stop = found.span()
    match found.lastgroup:
        case "comment":
            close = text.find("-->", stop, end)
            return [Fragment(start, close + len("-->"), FragmentKind.COMMENT)] if close >= 0 else None
        case "code":
            opening, closing = found.span("literal")
            return [
                Fragment(start, opening, FragmentKind.SYNTAX),
                *_run(text, opening, closing),
                Fragment(closing, stop, FragmentKind.SYNTAX),
            ]
        case "cite":
            return _marker(text, start, stop, end, resolves)
        case "bracket":
            return [Fragment(start, stop, FragmentKind.MARKER)] if resolves is not None and resolves(found[0]) else None
        case "open":
            return _link(text, found, end, resolves)
        case "note":
            return _note(text, found, resolves)
        case "tag":
            return _element(found)
        case _:
            return _simple_token(found)


def _simple_token(found: re.Match[str]) -> list[Fragment] | None:
    """The fragments of a token that does not depend on the text around it; None if it is text."""
    start, stop = found.span()
    match found.lastgroup:
        case "auto":
            return [
                Fragment(start, start + 1, FragmentKind.SYNTAX),
                Fragment(start + 1, stop - 1, FragmentKind.TEXT, found["auto"]),
                Fragment(stop - 1, stop, FragmentKind.SYNTAX),
            ]
        case "escaped":
            return [
                Fragment(start, start + 1, FragmentKind.SYNTAX),
                Fragment(start + 1, stop, FragmentKind.TEXT, found["escaped"]),
            ]
        case "entity":
            character = html.unescape(found[0])
            shown = not _FORMAT.fullmatch(character)
            return [
                Fragment(
                    start, stop, FragmentKind.TEXT if shown else FragmentKind.INVISIBLE, character if shown else ""
                )
            ]
        case "quote":
            return [Fragment(start, stop, FragmentKind.SYNTAX, "\n")]
        case _:
            return [Fragment(start, stop, FragmentKind.SYNTAX)] if _is_emphasis(found) else None


def _marker(text: str, start: int, stop: int, end: int, resolves: Resolves | None) -> list[Fragment] | None:
    marker = text[start:stop]
    if resolves is None or resolves(marker):
        kind = FragmentKind.MARKER
    elif any(character.isalpha() for character in marker.strip("[]【】^")):
        return None
    else:
        kind = FragmentKind.STRAY_MARKER
    made = [Fragment(start, stop, kind)]
    link = _DESTINATION.match(text, stop, end)
    return [*made, *_destination(link)] if link else made


def _link(text: str, found: re.Match[str], end: int, resolves: Resolves | None) -> list[Fragment] | None:
    """``[text](target "title")`` or ``[text][reference]``."""
    start, stop = found.span("label")
    whole = found["open"].removeprefix("!")
    if resolves is not None and resolves(whole):
        made = [Fragment(found.start(), found.end(), FragmentKind.MARKER)]
    else:
        made = [
            Fragment(found.start(), start, FragmentKind.SYNTAX),
            *_inline(text, start, stop, resolves),
            Fragment(stop, stop + 1, FragmentKind.SYNTAX),
        ]
    after = found.end()
    if text[after] == "[":
        close = text.index("]", after) + 1
        reference = text[after:close]
        kind = (
            FragmentKind.MARKER if resolves is None or reference == "[]" or resolves(reference) else FragmentKind.LINK
        )
        return [*made, Fragment(after, close, kind)]
    link = _DESTINATION.match(text, after, end)
    return [*made, *_destination(link)] if link else None


def _destination(link: re.Match[str]) -> Iterator[Fragment]:
    at = link.start()
    for part in ("target", "title"):
        start, stop = link.span(part)
        if stop > start:
            yield from _gap(at, start)
            yield Fragment(start, stop, FragmentKind.LINK)
            at = stop
    yield from _gap(at, link.end())


def _note(text: str, found: re.Match[str], resolves: Resolves | None) -> list[Fragment]:
    """A superscript number: a citation marker, or a power if it follows a number."""
    start, stop = found.span()
    digits = found[0][len("<sup>") : -len("</sup>")]
    marker = f"[{digits.strip('[]')}]"
    if not text[max(0, start - 1) : start].isdecimal() and (resolves is None or resolves(marker)):
        return [Fragment(start, stop, FragmentKind.MARKER)]
    inner, after = start + len("<sup>"), stop - len("</sup>")
    return [
        Fragment(start, inner, FragmentKind.SYNTAX, "^"),
        Fragment(inner, after, FragmentKind.TEXT, digits),
        Fragment(after, stop, FragmentKind.SYNTAX, " "),
    ]


def _element(found: re.Match[str]) -> list[Fragment] | None:
    name = found["name"].lower()
    if name not in _TAGS:
        return None
    start, stop = found.span()
    said = "" if name in _INLINE_TAGS else "^" if name == "sup" and found[0][1] != "/" else " "
    attributes = found["attributes"].strip().rstrip("/").rstrip()
    if not attributes:
        return [Fragment(start, stop, FragmentKind.SYNTAX, said)]
    begin = found.start("attributes") + found["attributes"].index(attributes)
    end = begin + len(attributes)
    return [
        Fragment(start, begin, FragmentKind.SYNTAX, said),
        Fragment(begin, end, FragmentKind.ATTRIBUTE),
        Fragment(end, stop, FragmentKind.SYNTAX),
    ]


def _is_emphasis(found: re.Match[str]) -> bool:
    """Whether asterisks and underscores are emphasis rather than an operator or part of a name (2*3, a_b)."""
    marks, text = found["marks"], found.string
    before = text[found.start() - 1 : found.start()] or " "
    after = text[found.end() : found.end() + 1] or " "
    within_word = before.isalnum() and after.isalnum()
    is_text = (within_word and (len(marks) == 1 or marks[0] == "_")) or (before.isspace() and after.isspace())
    return not is_text


def _run(text: str, start: int, end: int) -> Iterator[Fragment]:
    """Text without markup; invisible characters are fragments of their own."""
    if start >= end:
        return
    run = text[start:end]
    if run.isascii() and run.isprintable():
        yield Fragment(start, end, FragmentKind.TEXT, run)
        return
    at = start
    for found in _FORMAT.finditer(text, start, end):
        if _belongs(text, found.start(), found.end()):
            continue
        if found.start() > at:
            yield Fragment(at, found.start(), FragmentKind.TEXT, _join_surrogates(text[at : found.start()]))
        yield Fragment(found.start(), found.end(), FragmentKind.INVISIBLE)
        at = found.end()
    if end > at:
        yield Fragment(at, end, FragmentKind.TEXT, _join_surrogates(text[at:end]))


def _belongs(text: str, start: int, end: int) -> bool:
    """Whether invisible characters shape their neighbours: an emoji variant or sequence, or a joiner in a script that
    needs it."""
    if end - start > 2 or start == 0:
        return False
    characters = text[start:end]
    before, after = text[start - 1], text[end : end + 1]
    if characters in ("\ufe0e", "\ufe0f"):
        return unicodedata.category(before) in ("So", "Sk", "Sm", "Po") or after == "\u20e3"
    if characters in ("\u200d", "\ufe0f\u200d"):
        pictures = unicodedata.category(before) in ("So", "Sk") and unicodedata.category(after or " ") == "So"
        return pictures or (characters == "\u200d" and _is_joined(before, after))
    return characters in _JOINERS and _is_joined(before, after)


def _is_joined(before: str, after: str) -> bool:
    return bool(_JOINED_SCRIPTS.match(before) and after and _JOINED_SCRIPTS.match(after))


def _join_surrogates(text: str) -> str:
    """``text`` with surrogate pairs joined that a stream delivered in halves; a lone half is replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
