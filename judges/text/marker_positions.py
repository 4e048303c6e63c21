"""Tells citation markers from brackets that belong to the sentence around them.

A client shows ``[8](url)`` as a link with the text "8". At the end of a clause, that is a citation. Elsewhere, it can
be what the sentence states: "at most [8](url) tablets". The same is true of a document's name: "[Adults](url) take".
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from judges.text.emphasis import is_word
from judges.text.fragments import Fragment, FragmentKind

_NAMED = r"(?:[Dd]oc(?:ument)?|[Ss]ource|[Rr]ef(?:erence)?|[Cc]hunk|[Qq]uelle|[Dd]okument|[Ff]uente)s?"
CITATION: Final = re.compile(
    rf"\[\[?\^?(?:{_NAMED}[ :#_-]{{0,2}})?\d{{1,3}}(?:[ ,;–†-]{{1,2}}\^?\d{{1,3}}){{0,8}}\]?\]"
    rf"|\[{_NAMED}: ?[^\[\]\n]{{1,60}}\]"
    r"|【[^【】\n]{1,60}】"
)
"""Text that looks like a citation marker: ``[1]``, ``[^2]``, ``[3, 4]``, ``[doc 5]``, ``【6†source】``."""

_EDGE = "\0"
"""The beginning and end of the text, or of a table cell."""
_CLAUSE_END = re.compile(rf"\s*+[)\]}}\"'”’»）］】」』]*+\s*+(?:{_EDGE}|[.,;:!?…。，、；：！？](?!\d))")
_WORD = re.compile(r"\s*+\w")
_OPENING = frozenset("([{（［")
_CLOSING = frozenset(".!?…)]}\"'”’»。！？）］】」』")
_PAUSES = frozenset(".,;…")
_SIGNS = frozenset("%‰°€$£¥")
"""Signs that may follow a number."""
_FILE = re.compile(r"\[(?:https?://[^\s\[\]]+|[^\s\[\]]+\.[A-Za-z][A-Za-z0-9]{1,4})\]")
"""The name of a file or an address in brackets. In a sentence, it can only be a source."""
_LOOK_BACK = 16


def misplaced_markers(text: str, parts: Sequence[Fragment]) -> Iterator[tuple[int, FragmentKind]]:
    """Yield the index of each marker in ``parts`` that isn't where a citation stands, and its kind: ``TEXT`` if it
    belongs to the sentence, ``STRAY_MARKER`` if it may be a citation or a number of the sentence."""
    said = [_EDGE]
    ends = [1]
    for part in parts:
        is_bar = part.kind is FragmentKind.SYNTAX and text[part.start] == "|"
        said.append(_EDGE if is_bar else part.spoken)
        ends.append(ends[-1] + len(said[-1]))
    shown = "".join([*said, _EDGE])
    last, space, ends_clause, is_followed = -1, "", False, False
    for place, part in enumerate(parts):
        if part.kind is not FragmentKind.MARKER or text[part.start] not in _OPENING:
            continue
        at = ends[place]
        if at != last:  # markers that follow each other have the same text before and after them
            last, space = at, ""
            ends_clause, is_followed = (found.match(shown, at) is not None for found in (_CLAUSE_END, _WORD))
        if text[max(0, part.start - 1) : part.start].isspace():
            space = " "
        before = f"{_EDGE}{shown[max(0, at - _LOOK_BACK) : at]}{space}"
        marker = text[part.start : part.end]
        if _is_link(text, parts, place):
            kind = _label_kind(marker, before, shown[at], ends_clause=ends_clause)
        else:
            kind = _bracket_kind(marker, before, ends_clause=ends_clause, is_followed=is_followed)
        if kind is not FragmentKind.MARKER:
            yield place, kind


def _label_kind(label: str, before: str, after: str, *, ends_clause: bool) -> FragmentKind:
    """Return the kind of a link's label. A client shows it without its brackets."""
    is_name = any(map(str.isalpha, label))
    if is_name and not _FILE.fullmatch(label):
        is_citation = before.rstrip()[-1] in _OPENING | _CLOSING
    else:
        is_citation = _is_clause(before)
    if is_citation and ends_clause and not before[-1].isdecimal():
        return FragmentKind.MARKER
    touches = before[-1].isdecimal() or after.isdecimal()
    return FragmentKind.TEXT if is_name or touches else FragmentKind.STRAY_MARKER


def _bracket_kind(marker: str, before: str, *, ends_clause: bool, is_followed: bool) -> FragmentKind:
    """Return the kind of a marker that is shown with its brackets."""
    if "](" in marker or before[-1].isdecimal():  # "([8](url)) tablets", "2[8] tablets"
        return FragmentKind.MARKER if ends_clause else FragmentKind.STRAY_MARKER
    is_name = any(map(str.isalpha, marker)) and not CITATION.fullmatch(marker) and not _FILE.fullmatch(marker)
    leads = is_followed and not before.replace(_EDGE, " ").strip()
    return FragmentKind.TEXT if is_name and leads else FragmentKind.MARKER


def _is_link(text: str, parts: Sequence[Fragment], place: int) -> bool:
    """Return whether the marker is the text of a link and has no brackets of its own, so that none are shown."""
    part = parts[place]
    is_label = text[part.start] == "[" and text[part.start + 1] != "["
    return is_label and text[part.end : part.end + 1] == "(" and parts[place + 1].kind is FragmentKind.SYNTAX


def _is_clause(before: str) -> bool:
    """Return whether a citation can follow ``before``: it ends with a word or a closing mark. A number has to be
    separated by a space."""
    bare = before.rstrip()
    if bare[-1] in _PAUSES:
        bare = bare[:-1].rstrip()
    last = bare[-1]
    if last.isdecimal():
        return any(map(str.isspace, before[len(bare) :]))
    if last in _SIGNS:
        return bare[-2].isdecimal()
    return last in _OPENING or last in _CLOSING or (last != _EDGE and is_word(last))
