"""Distinguishes citation markers from brackets that belong to the surrounding sentence.

A client shows ``[8](url)`` as a link with the text "8". At the end of a clause, that is a citation. Elsewhere, it can
be part of the statement: "at most [8](url) tablets". The same is true of a document's name: "[Adults](url) take".
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from judges.text.emphasis import is_word
from judges.text.fragments import Fragment, FragmentKind
from judges.text.languages.rules import STATING
from judges.text.link_patterns import REFERENCE

_NAMED = r"(?:[Dd]oc(?:ument)?|[Ss]ource|[Rr]ef(?:erence)?|[Cc]hunk|[Qq]uelle|[Dd]okument|[Ff]uente)s?"
_NUMBERED = rf"\^?(?:{_NAMED}[ :#_-]{{0,2}})?\d{{1,3}}(?:[ ,;–†-]{{1,2}}\^?\d{{1,3}}){{0,8}}"
CITATION: Final = re.compile(
    rf"\[(?:{_NUMBERED}|\[{_NUMBERED}\])\]"
    rf"|\[{_NAMED}: ?[^\[\]\n]{{1,60}}\]"
    r"|【[^【】\n]{1,60}】"
)
"""Text that looks like a citation marker: ``[1]``, ``[^2]``, ``[3, 4]``, ``[doc 5]``, ``【6†source】``."""

_EDGE = "\0"
"""The beginning and end of the text, or of a table cell."""
_CLAUSE_END = re.compile(rf" ?[)\]}}\"'”’»）］】」』]{{0,8}}+ ?(?:{_EDGE}|[.,;:!?…。，、；：！？](?!\d))")
"""The end of a clause. The number of closing marks is limited, so that the time for a row of markers is linear."""
_WORD = re.compile(r" ?\w")
_SPACE = re.compile(r"\s+")
_OPENING = frozenset("([{（［")
_CLOSING = frozenset(".!?…)]}\"'”’»。！？）］】」』")
_PAUSES = frozenset(".,;…")
_SIGNS = frozenset("%‰°€$£¥")
"""Signs that may follow a number."""
_FILE = re.compile(r"\[(?:https?://[^\s\[\]]+|[^\s\[\]]+\.[A-Za-z][A-Za-z0-9]{1,4})\]")
"""A file name or address in brackets. In a sentence, it can only be a source."""
_NOTE = "<sup>"
_RAISABLE = re.compile(r"(?:(?<![^\W_])(?:[^\W\d_]|[cdkm]m|ft|yd)|\d\s?[^\W\d_]{1,3}|\d\s?[)\]}])\Z")
"""The end of a text that a raised number may belong to: a unit, or a number in brackets."""
_FRACTION_BARS = frozenset("/⁄")
_LAST_WORD = re.compile(r"(?<![^\W\d_])[^\W\d_]++(?:['’][^\W\d_]++)?\s*+\Z")
_LOOK_BACK = 16


def misplaced_markers(text: str, parts: Sequence[Fragment]) -> Iterator[tuple[int, FragmentKind]]:
    """Yield the index of each marker in ``parts`` that isn't in the place of a citation, and its kind: ``TEXT`` if it
    belongs to the sentence, or ``STRAY_MARKER`` if it may be either a citation or a number in the sentence."""
    for place, around in _markers(text, parts):
        marker = text[parts[place].start : parts[place].end]
        if marker.startswith(_NOTE):
            kind = FragmentKind.TEXT if around.is_power else FragmentKind.MARKER
        elif _is_link(text, parts, place):
            kind = _label_kind(marker, around)
        else:
            kind = _bracket_kind(marker, around)
        if kind is not FragmentKind.MARKER:
            yield place, kind


def labels_in_clauses(text: str, parts: Sequence[Fragment]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each marker in ``parts`` that would not be a citation if the reply turned it into a
    link by defining its label (``[8]: url``). A marker may contain others: "([8], [9])"."""
    for place, around in _markers(text, parts):
        start, end = parts[place].start, parts[place].end
        for label in REFERENCE.finditer(text, start, end):
            in_brackets = label.start() > start and text[label.start() - 1] == "["  # "[[8]]" is shown as "[8]"
            if not in_brackets and _label_kind(label[0], around) is not FragmentKind.MARKER:
                yield label.span()


class _Around(Struct, frozen=True):
    """The text around a marker, without other markers next to it."""

    before: str
    after: str
    ends_clause: bool
    is_followed: bool
    """Whether a word follows."""

    @property
    def touches_number(self) -> bool:
        """Whether the character before or after the marker belongs to a number."""
        return self.before[-1].isnumeric() or self.after.isnumeric()

    @property
    def lacks_object(self) -> bool:
        """Whether the text before the marker ends with a verb such as "is", with which no clause ends."""
        word = _LAST_WORD.search(self.before)
        return word is not None and word[0].rstrip().lower() in STATING

    @property
    def is_power(self) -> bool:
        """Whether a raised number here may belong to a number, a unit or a fraction: "10<sup>5</sup>",
        "m<sup>2</sup>", "<sup>1</sup>/2"."""
        return self.touches_number or _RAISABLE.search(self.before) is not None or self.after in _FRACTION_BARS


def _markers(text: str, parts: Sequence[Fragment]) -> Iterator[tuple[int, _Around]]:
    """Yield the index of each marker in ``parts``, and the text around it."""
    shown, ends = _shown(text, parts)
    last, space, ends_clause, is_followed = -1, "", False, False
    for place, part in enumerate(parts):
        is_marker = part.kind is FragmentKind.MARKER
        if not is_marker or not (text[part.start] in _OPENING or text.startswith(_NOTE, part.start)):
            continue
        at = ends[place]
        if at != last:  # markers that follow each other have the same text before and after them
            last, space = at, ""
            ends_clause, is_followed = (found.match(shown, at) is not None for found in (_CLAUSE_END, _WORD))
        if text[max(0, part.start - 1) : part.start].isspace():
            space = " "
        before = f"{_EDGE}{shown[max(0, at - _LOOK_BACK) : at]}{space}"
        yield place, _Around(before, shown[at], ends_clause, is_followed)


def _shown(text: str, parts: Sequence[Fragment]) -> tuple[str, Sequence[int]]:
    """Return the text that is shown, with markers and tags left out and whitespace collapsed, and the position in it
    at which each part begins."""
    said = [_EDGE]
    ends = [1]
    for part in parts:
        shown = part.spoken
        if part.kind is FragmentKind.SYNTAX and text[part.start] in "|<":
            shown = _EDGE if text[part.start] == "|" else ""
        shown = _SPACE.sub(" ", shown)
        if said[-1][-1] == " ":
            shown = shown.lstrip()
        if shown:
            said.append(shown)
        ends.append(ends[-1] + len(shown))
    return "".join([*said, _EDGE]), ends


def _label_kind(label: str, around: _Around) -> FragmentKind:
    """Return the kind of a link's label, which a client shows without its brackets."""
    is_name = any(map(str.isalpha, label))
    if around.ends_clause and not is_name and around.lacks_object:  # "The maximum is [8](url)."
        return FragmentKind.TEXT
    if is_name and not _FILE.fullmatch(label):
        is_citation = around.before.rstrip()[-1] in _OPENING | _CLOSING
    else:
        is_citation = _is_clause(around.before)
    if is_citation and around.ends_clause and not around.before[-1].isnumeric():
        return FragmentKind.MARKER
    return FragmentKind.TEXT if is_name or around.touches_number else FragmentKind.STRAY_MARKER


def _bracket_kind(marker: str, around: _Around) -> FragmentKind:
    """Return the kind of a marker that is shown with its brackets."""
    if marker.startswith("[^") and around.before[-1].isnumeric():  # shown as a raised number: "10[^5]"
        return FragmentKind.STRAY_MARKER
    if "](" in marker or around.touches_number:  # "([8](url)) tablets", "2[8] tablets"
        return FragmentKind.MARKER if around.ends_clause else FragmentKind.STRAY_MARKER
    is_name = any(map(str.isalpha, marker)) and not CITATION.fullmatch(marker) and not _FILE.fullmatch(marker)
    leads = around.is_followed and not around.before.replace(_EDGE, " ").strip()
    return FragmentKind.TEXT if is_name and leads else FragmentKind.MARKER


def _is_link(text: str, parts: Sequence[Fragment], place: int) -> bool:
    """Return whether the marker is the text of a link and has no brackets of its own, so that none are shown. Two
    adjacent numbers (``[1][2]``) are a link only if the reply defines the second."""
    start, end = parts[place].start, parts[place].end
    if text[start] != "[" or text[start + 1] == "[":
        return False
    if text[end : end + 1] == "(":
        return parts[place + 1].kind is FragmentKind.SYNTAX
    if text[end : end + 1] != "[" or REFERENCE.match(text, end) is None:
        return False
    return text[end + 1] == "]" or CITATION.fullmatch(text, start, end) is None


def _is_clause(before: str) -> bool:
    """Return whether a citation can follow ``before``, because it ends with a word or a closing mark. After a number,
    there must be a space."""
    bare = before.rstrip()
    if bare[-1] in _PAUSES:
        bare = bare[:-1].rstrip()
    last = bare[-1]
    if last.isnumeric():
        return any(map(str.isspace, before[len(bare) :]))
    if last in _SIGNS:
        return bare[-2].isnumeric()
    return last in _OPENING or last in _CLOSING or (last != _EDGE and is_word(last))
