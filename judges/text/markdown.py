"""Parses Markdown and HTML into fragments that cover every character, and into the text that a judge reads."""

import re
import sys
from collections.abc import Iterator, Sequence
from html.entities import html5
from typing import Final

from msgspec.structs import replace

from judges.text.emphasis import mark_fragment, settle_marks
from judges.text.fragments import (
    INVISIBLE_CHARACTERS,
    Fragment,
    FragmentKind,
    Resolves,
    code_fragments,
    markup_fragments,
    note_fragments,
    power_fragments,
    spoken,
    text_fragments,
)
from judges.text.link_patterns import DEEP_DESTINATION, DESTINATION, FOOTNOTE, LINK_DEFINITIONS, REFERENCE
from judges.text.marker_positions import CITATION, misplaced_markers
from judges.types import BlockMarks, Sentence

ROW: Final = re.compile(r"\s*\|")
HEADING: Final = re.compile(r"\s*#{1,6}(?:[ \t]|\Z)")
ITEM: Final = re.compile(
    r"\s*(?:>\s?){0,8}(?:[-*+•◦‣▪–—]|\d{1,3}\.|\(?(?:\d{1,3}|[A-Za-z])\))[ \t]+"
    r"(?:(?:(?:[-*+>]|\d{1,9}[.)])[ \t]+){0,8}\[[ xX]\](?:[ \t]+|(?=\s|\Z)))?"
)

_BLOCK = re.compile(rf"(?:\s*>){{0,8}}(?:\s*#{{1,6}}[ \t]+|{ITEM.pattern})?(?:\s*\Z)?")
_PREFIX_PARTS = re.compile(
    r"(?P<text>\((?:\d{1,9}|[A-Za-z])\)|[A-Za-z]\))|(?P<ordinal>\d{1,9})|(?P<symbol>\[[ xX]\][ \t]*)"
    r"|(?P<sign>[-*+>])|(?P<dash>[•◦‣▪–—])"
)
"""The parts of a prefix. Clients show numbers in other forms than "1." or "1)" as text."""
_RULE = re.compile(r"\s*(?:[-_*=]\s*){3,}\Z")

_BRACKETS = "|".join(
    rf"\{opening}[^()\[\]［］【】（）〔〕⟨⟩{{}}\n]{{1,120}}\{closing}"
    for opening, closing in ("()", "[]", "［］", "【】", "（）", "〔〕", "⟨⟩", "{}")
)
_BRACKET = f"(?:{_BRACKETS})"
_TOKEN = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`{1,3})(?!`)(?P<literal>[^`]{1,1000})(?P=ticks)(?!`))"
    rf"|(?P<cite>{CITATION.pattern})"
    r"|(?P<image>!\[(?:(?P<alt>(?:[^\[\]\\]++|\\[\s\S]|\[(?:[^\[\]\\]++|\\[\s\S])*+\](?:\([^()\n]*+\))?)*+)\])?+)"
    r"|(?P<open>\[(?P<label>(?:[^\[\]]|!?\[[^\[\]]{0,100}+\]){0,500}+)\])(?=\(|\[[^\[\]]{0,100}\])"
    r"|(?P<close>\](?=\())"
    rf"|(?P<bracket>{_BRACKET})"
    rf"|(?P<nested>[(\[（［]\s?(?:{_BRACKET}(?:\s?[,;&]\s?|\s)?){{1,8}}[)\]）］])"
    r"|(?P<note><sup>\[?\d{1,3}\]?</sup>)"
    r"|<(?P<auto>(?:https?://|mailto:)[^<>\s]{1,1000})>"
    r"|(?P<markup><(?=[a-zA-Z/!?]|\Z))"
    r"|(?P<loose>\\&(?=#)|&#(?:[0-9]{1,7}|[xX][0-9a-fA-F]{1,6})(?![0-9a-fA-F;]))"
    r"|\\(?!<[a-zA-Z/!?])(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<entity>&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});)"
    r"|(?P<marks>\*+|_+|~+)"
    r"|(?P<angle><[^<>\n]{1,120}>)"
)
_INNER = re.compile(_BRACKET)
_MARKING = frozenset(["cite", "bracket", "nested", "angle", "markup", "note"])
"""Tokens that may be citation markers."""
_MARKED = re.compile(r"[`*_~<\\\[\](【［（〔⟨{&]")
"""Every token of inline Markdown contains at least one of these characters; most sentences contain none."""
_UNMARKED = re.compile(r"[a-zA-Z](?!\))[^\x00-\x1f\x7f-\U0010ffff`*_~<\\\[\]({&]*\n*\Z")
"""Matches text without markup and invisible characters. Most sentences are such text."""
_MAX_LINE_CHARS = 2000
"""The maximum number of characters in which the line above a link definition is searched."""
_FIRST_WORD = re.compile(r"[^\W_]")
_MAX_SYMBOLS = 64
_CONTROL = re.compile("[\x7f-\x9f]")
_DELIMITER = re.compile(r"\s*:?-+:?\s*\Z")
_CELL = re.compile(r"(?<!\\)\|")


def plain(text: str, marks: BlockMarks = BlockMarks.MARKUP) -> str:
    """Return the plain text of a sentence or block of Markdown. Markup and citations are removed, link texts and code
    are kept, and whitespace is collapsed. The result is "" if nothing is left, as for a rule or a single marker."""
    if marks is not BlockMarks.CODE and ROW.match(text):
        return ", ".join(cell for cell in cells(text) if cell)
    return spoken(fragments(text, marks=marks))


def is_row(sentence: Sentence) -> bool:
    """Return whether ``sentence`` is a table row. A line of indented code isn't one."""
    return sentence.marks is not BlockMarks.CODE and ROW.match(sentence.text) is not None


def plain_code(text: str) -> str:
    """Return the code of a fenced block without its fences and with whitespace collapsed."""
    return spoken(code_fragments(text, info=False))


def cells(row: str) -> list[str]:
    """Return the plain text of each cell of a table row; empty for the delimiter row below a header."""
    row = row.strip()
    found = [spoken(cell) for cell in cell_fragments(row, fragments(row))][1:]
    if found and not found[-1] and row.endswith("|"):
        found.pop()
    return found if any(found) else []


def verbalise_row(header: Sequence[str], values: Sequence[str]) -> str:
    """Return a table row in words: each cell, preceded by its column's name if all columns have one."""
    names = header if len(header) == len(values) else [""] * len(values)
    return "; ".join(f"{name}: {value}" if name else value for name, value in zip(names, values, strict=True) if value)


def fragments(text: str, resolves: Resolves | None = None, marks: BlockMarks = BlockMarks.MARKUP) -> list[Fragment]:
    """Return the fragments of a sentence or block of Markdown; they cover it without overlapping. ``resolves``
    distinguishes citation markers from other brackets. Without it, everything that looks like a marker is one;
    documents are read this way, because their markers cite other texts. ``marks`` says how to read block marks at the
    beginning."""
    if _UNMARKED.match(text):
        return [Fragment(0, len(text), FragmentKind.TEXT, text)]
    if marks is BlockMarks.CODE:
        return list(text_fragments(text, 0, len(text)))
    if ROW.match(text):
        return _settled(text, list(_row(text, resolves)), resolves)
    if _RULE.match(text):
        return [Fragment(0, len(text), FragmentKind.SYNTAX)]
    return _settled(text, _block_fragments(text, resolves, marks), resolves)


def _block_fragments(text: str, resolves: Resolves | None, marks: BlockMarks) -> list[Fragment]:
    block = _BLOCK.match(text)
    start = block.end() if block else 0
    found = [*_block(text, start, marks)]
    for definition in LINK_DEFINITIONS.finditer(text) if "]:" in text and not FOOTNOTE.match(text) else ():
        if definition.start("label") >= start and begins_paragraph(text, definition.start("label"), start):
            found += _inline(text, start, definition.start("label"), resolves)
            found += _definition(definition, resolves)
            start = definition.end()
    return [*found, *_inline(text, start, len(text), resolves)]


def begins_paragraph(text: str, at: int, start: int) -> bool:
    """Return whether a link definition can begin in the line of ``at``, because the line is the first after ``start``
    or follows a blank line or a heading. In the middle of a paragraph, clients show it as text."""
    lines = text[max(start, at - _MAX_LINE_CHARS) : at].replace("\r\n", "\n").replace("\r", "\n").split("\n")
    last = lines[-2] if len(lines) > 1 else ""
    if len(lines) < 3 and at - start > _MAX_LINE_CHARS:
        return False
    return not last.strip(" \t>") or HEADING.match(last) is not None


def cell_fragments(text: str, parts: Sequence[Fragment]) -> list[list[Fragment]]:
    """Return the fragments of each cell of a table row."""
    cells: list[list[Fragment]] = [[]]
    for part in parts:
        if part.kind is FragmentKind.SYNTAX and text[part.start] == "|":
            cells.append([])
        else:
            cells[-1].append(part)
    return cells


def _settled(text: str, parts: Sequence[Fragment], resolves: Resolves | None) -> list[Fragment]:
    """Return ``parts`` after deciding on those whose meaning depends on the surrounding text."""
    settled = list(parts)
    if any(part.kind is FragmentKind.MARKER for part in parts):
        settled = _with_markers_settled(text, parts, resolves)
    is_marked = any(part.kind is FragmentKind.EMPHASIS for part in settled)
    return settle_marks(text, settled) if is_marked else settled


def _with_markers_settled(text: str, parts: Sequence[Fragment], resolves: Resolves | None) -> list[Fragment]:
    """Return ``parts`` with the markers that belong to the sentence replaced."""
    misplaced = dict(misplaced_markers(text, parts))
    settled: list[Fragment] = []
    for place, part in enumerate(parts):
        start, end = part.start, part.end
        match misplaced.get(place):
            case None:
                spaced = misplaced.get(place + 1) is FragmentKind.TEXT and text[start:end].isspace()
                settled.append(replace(part, spoken=" ") if spaced else part)
            case FragmentKind.TEXT if text[start] == "<":
                settled += power_fragments(text, start, end)
            case FragmentKind.TEXT:
                settled += [*_gap(start, start + 1), *_inline(text, start + 1, end - 1, resolves)]
                settled += _gap(end - 1, end)
            case kind:
                settled.append(replace(part, kind=kind))
    return settled


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


def _definition(found: re.Match[str], resolves: Resolves | None) -> Iterator[Fragment]:
    """Yield the fragments of the definition of a marker or link reference."""
    label = found["label"]
    if resolves is None or resolves(label):
        kind = FragmentKind.MARKER
    else:
        kind = FragmentKind.STRAY_MARKER if label.strip("[]^").isdecimal() else FragmentKind.LINK
    yield Fragment(*found.span("label"), kind)
    at = found.end("label")
    for part in ("target", "title"):
        if found[part]:
            yield from _gap(at, found.start(part))
            names = part == "target" and resolves is not None and resolves(f"[{found[part]}]")
            yield Fragment(*found.span(part), FragmentKind.MARKER if names else FragmentKind.LINK)
            at = found.end(part)
    if found.end() > at:
        yield Fragment(at, found.end(), FragmentKind.SYNTAX, " ")


def _block(text: str, end: int, marks: BlockMarks) -> Iterator[Fragment]:
    """Yield the prefix of a block: block quote marks, hashes, a bullet or a number, and a check box. A mark that may be
    a sign is read before a number."""
    at, counts = 0, begins_with_number(text, end)
    is_text, told = marks is BlockMarks.TEXT, False
    shown = {"text", *(["dash"] if counts else []), *(["sign"] if counts and marks is BlockMarks.SIGNS else [])}
    for found in _PREFIX_PARTS.finditer(text, 0, end):
        kind = found.lastgroup or "text"
        yield from _prefix_gap(text, at, found.start(), shown=is_text or told)
        told = kind in shown or (is_text and kind != "symbol")
        if told:
            yield Fragment(*found.span(), FragmentKind.TEXT, found[0])
        elif kind in ("sign", "dash"):
            yield from _gap(*found.span())
        else:
            yield Fragment(*found.span(), FragmentKind(kind))
        at = found.end()
    yield from _prefix_gap(text, at, end, shown=is_text or told)


def begins_with_number(text: str, at: int = 0) -> bool:
    """Return whether the first word at or after ``at`` begins with a digit or another numeral."""
    first = _FIRST_WORD.search(text, at, at + _MAX_SYMBOLS)
    return first is not None and first[0].isnumeric()


def _gap(start: int, end: int) -> Iterator[Fragment]:
    if end > start:
        yield Fragment(start, end, FragmentKind.SYNTAX)


def _prefix_gap(text: str, start: int, end: int, *, shown: bool) -> Iterator[Fragment]:
    if shown and end > start:
        yield Fragment(start, end, FragmentKind.TEXT, text[start:end])
    else:
        yield from _gap(start, end)


def _inline(text: str, start: int, end: int, resolves: Resolves | None) -> Iterator[Fragment]:
    """Yield the fragments of inline Markdown in ``text[start:end]``."""
    if not _MARKED.search(text, start, end):
        yield from text_fragments(text, start, end)
        return
    at = search = start
    while (found := _TOKEN.search(text, search, end)) is not None:
        made = _token(text, found, end, resolves)
        if made is None:  # not markup
            search = found.start() + 1
            continue
        if found.lastgroup != "note" and _is_in_number(text, made):
            made = [Fragment(*found.span(), FragmentKind.STRAY_MARKER, found[0])]
        if found.lastgroup in _MARKING and made[-1].kind in (
            FragmentKind.MARKER,
            FragmentKind.STRAY_MARKER,
        ):
            # The space before a marker belongs to the marker, unless a word follows the marker without a space.
            spaced = found.start() > at and text[found.start() - 1] in " \t"
            before = found.start() - (spaced and not text[made[-1].end : made[-1].end + 1].isalnum())
            yield from text_fragments(text, at, before)
            yield from _gap(before, found.start())
        else:
            yield from text_fragments(text, at, found.start())
        yield from made
        at = search = made[-1].end
    yield from text_fragments(text, at, end)


def _is_in_number(text: str, made: Sequence[Fragment]) -> bool:
    """Return whether a digit follows a bracketed citation marker, which may then be part of the number."""
    return len(made) == 1 and made[0].kind is FragmentKind.MARKER and text[made[0].end : made[0].end + 1].isdecimal()


def _token(text: str, found: re.Match[str], end: int, resolves: Resolves | None) -> list[Fragment] | None:
    """Return the fragments of a token, or None if it is text."""
    start, stop = found.span()
    match found.lastgroup:
        case "code" if "<" in found["literal"] and text.lstrip()[:1] == "<":  # an HTML block, which contains no code
            return None
        case "code":
            opening, closing = found.span("literal")
            return [
                Fragment(start, opening, FragmentKind.SYNTAX),
                *text_fragments(text, opening, closing),
                Fragment(closing, stop, FragmentKind.SYNTAX),
            ]
        case "cite":
            return _marker(text, start, stop, end, resolves)
        case "bracket" | "angle" | "nested":
            return _bracket(found, resolves)
        case "open":
            return _link(text, found, end, resolves)
        case "image":
            return _image(text, found, end, resolves)
        case "close":
            return _close(text, start, end)
        case "note":
            return note_fragments(text, found, resolves)
        case "markup":
            return markup_fragments(text, start, end, resolves)
        case _:
            return _simple_token(found)


def _simple_token(found: re.Match[str]) -> list[Fragment] | None:
    """Return the fragments of a token that doesn't depend on the surrounding text, or None if it is text."""
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
            character = _decoded(found[0])
            if _CONTROL.match(character) or INVISIBLE_CHARACTERS.fullmatch(character):
                return [Fragment(start, stop, FragmentKind.INVISIBLE)]
            return [Fragment(start, stop, FragmentKind.TEXT, character)]
        case "loose":  # an entity in HTML, but not in Markdown
            return [Fragment(start, stop, FragmentKind.STRUCK, found[0])]
        case _:
            return [mark_fragment(found.string, start, stop)]


def _decoded(entity: str) -> str:
    """Return the character of an entity, as CommonMark decodes it. A browser that reads the entity itself shows other
    characters for the numbers of control characters. An unknown entity is shown as it is written."""
    if entity[1] != "#":
        return html5.get(entity[1:], entity)
    number = int(entity[3:-1], 16) if entity[2] in "xX" else int(entity[2:-1])
    return chr(number) if 0 < number <= sys.maxunicode and not 0xD800 <= number <= 0xDFFF else "\ufffd"


def _bracket(found: re.Match[str], resolves: Resolves | None) -> list[Fragment] | None:
    """Return the fragments of a bracket that names a document, or that contains several such brackets."""
    if resolves is None:
        return None
    inner = _INNER.findall(found[0], 1) if found.lastgroup == "nested" else [found[0]]
    return [Fragment(*found.span(), FragmentKind.MARKER)] if all(map(resolves, inner)) else None


def _marker(text: str, start: int, stop: int, end: int, resolves: Resolves | None) -> list[Fragment] | None:
    marker = text[start:stop]
    if resolves is None or resolves(marker):
        kind = FragmentKind.MARKER
    elif any(character.isalpha() for character in marker.strip("[]【】^")):
        return None
    else:
        kind = FragmentKind.STRAY_MARKER
    made = [Fragment(start, stop, kind)]
    link = DESTINATION.match(text, stop, end)
    return [*made, *_destination(link)] if link else made


def _link(text: str, found: re.Match[str], end: int, resolves: Resolves | None) -> list[Fragment] | None:
    """Return the fragments of ``[text](target "title")`` or ``[text][reference]``."""
    start, stop = found.span("label")
    if resolves is not None and resolves(found["open"]):
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
        if target := DESTINATION.match(text, close, end):  # "[a]" and a link, unless the label in it is defined
            shown = Fragment(found.start(), after, FragmentKind.STRAY_MARKER, text[found.start() : after])
            return [shown, Fragment(after, close, FragmentKind.STRAY_MARKER, text[after:close]), *_destination(target)]
        reference = text[after:close]
        kind = (
            FragmentKind.MARKER if resolves is None or reference == "[]" or resolves(reference) else FragmentKind.LINK
        )
        return [*made, Fragment(after, close, kind)]
    link = DESTINATION.match(text, after, end)
    return [*made, *_destination(link)] if link else None


def _image(text: str, found: re.Match[str], end: int, resolves: Resolves | None) -> list[Fragment] | None:
    """Return the fragments of an image, or None if it is a marker after an exclamation mark. Browsers don't show the
    alternative text."""
    start, stop = found.span()
    alt = found["alt"]
    if alt is not None and (CITATION.fullmatch(text, start + 1, stop) or (resolves and resolves(f"[{alt}]"))):
        return None
    if link := DESTINATION.match(text, stop, end):
        if alt is not None and not alt.strip():
            return [Fragment(start, stop, FragmentKind.SYNTAX), *_destination(link)]
        stop = link.end()
    elif (reference := REFERENCE.match(text, stop, end)) and not (resolves and resolves(reference[0])):
        stop = reference.end()
    return [Fragment(start, stop, FragmentKind.ATTRIBUTE, " " if text[stop : stop + 1].isalnum() else "")]


def _close(text: str, start: int, end: int) -> list[Fragment] | None:
    """Return the fragments of the end of a link whose text contains brackets, or None if it is text."""
    if link := DESTINATION.match(text, start + 1, end):
        return [Fragment(start, start + 1, FragmentKind.SYNTAX), *_destination(link)]
    return [Fragment(start, start + 2, FragmentKind.LINK)] if DEEP_DESTINATION.match(text, start + 1, end) else None


def _destination(link: re.Match[str]) -> Iterator[Fragment]:
    at = link.start()
    for part in ("target", "title"):
        start, stop = link.span(part)
        if stop > start:
            yield from _gap(at, start)
            yield Fragment(start, stop, FragmentKind.LINK)
            at = stop
    yield from _gap(at, link.end())
