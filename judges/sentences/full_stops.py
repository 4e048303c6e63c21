"""Decides by the words around a full stop whether it ends a sentence."""

import re
from enum import Enum, auto

from judges.text.languages.rules import SplitRules

_LABEL = re.compile(r"[\s>*_#+•–—-]*\(?(?:\d{1,3}(?:\.\d{1,3}){0,3}|[A-Za-z]|[ivxIVX]{1,5})\Z")
_ACRONYM = re.compile(r"[^\W\d_](?:\.-?[^\W\d_]{1,2})+\Z")
_ELISION = re.compile(r"\A\w{1,2}['’]")
_NUMERAL = re.compile(r"\d.*|[IVXLC]+|[A-Z]", re.DOTALL)
_OPENERS = "([{\"'“„«‚‘*_~"
_WINDOW = 48


class FullStopKind(Enum):
    """What precedes a full stop. Each kind says what must follow for the sentence to end."""

    PLAIN = auto()
    """An ordinary word: anything but a lower-case letter."""
    NEVER = auto()
    """A title or a list label: the sentence never ends."""
    NUMBERED = auto()
    """"No.", "Art.", "Jan.": anything but a number or numeral."""
    LOOSE = auto()
    """"etc.", "p.m.": a capital that does not begin an acronym or day."""
    ENDING = auto()
    """"Inc.", "U.S.": a word that usually opens a sentence."""
    INITIAL = auto()
    """"J.", "z.": the same, unless the letter is a word by itself ("a size M.")."""
    ORDINAL = auto()
    """"3.": anything that does not make it an ordinal."""


def classify(rules: SplitRules, text: str, start: int, at: int) -> tuple[FullStopKind, str]:
    """The kind of the full stop at ``text[at]`` in the sentence from ``start``, and the word before its own."""
    if at - start <= 16 and _LABEL.match(text, start, at):
        return FullStopKind.NEVER, ""
    words = text[max(start, at - _WINDOW) : at].split()
    if not words:
        return FullStopKind.PLAIN, ""
    word = _ELISION.sub("", words[-1].lstrip(_OPENERS)).casefold()
    previous = words[-2].lstrip(_OPENERS) if len(words) > 1 else ""
    keys = {word, previous.casefold() + word}
    for kind, table in (
        (FullStopKind.NEVER, rules.titles),
        (FullStopKind.NUMBERED, rules.numbered),
        (FullStopKind.LOOSE, rules.loose),
        (FullStopKind.ENDING, rules.ending),
    ):
        if keys & table:
            return kind, previous
    return _by_shape(word), previous


def _by_shape(word: str) -> FullStopKind:
    if len(word) == 1 and word.isalpha():
        return FullStopKind.INITIAL
    if word.isdecimal() and len(word) <= 3:
        return FullStopKind.ORDINAL
    if _ACRONYM.match(word):
        return FullStopKind.ENDING
    return FullStopKind.PLAIN


def ends(rules: SplitRules, stop: FullStopKind, before: str, initial: str, following: str) -> bool:
    """Whether the sentence ends at a full stop that is not plain.

    Args:
        rules: the tables of abbreviations.
        stop: the kind of the full stop.
        before: the word before the abbreviated one, as written.
        initial: the character before the full stop.
        following: the next word, with its full stop if it has one.
    """
    word = following.casefold()
    starts = word in rules.starters
    match stop:
        case FullStopKind.NEVER:
            return False
        case FullStopKind.NUMBERED:
            return starts or not _NUMERAL.fullmatch(following)
        case FullStopKind.LOOSE:
            return not (len(following) > 1 and following.isupper()) and word not in rules.calendar
        case FullStopKind.ENDING:
            return starts
        case FullStopKind.INITIAL:
            return starts or (initial.isupper() and _is_no_name(rules, before))
        case _:
            return starts or not (word in rules.ordinal_after or before.casefold() in rules.ordinal_before)


def _is_no_name(rules: SplitRules, before: str) -> bool:
    return before.islower() and before.isalpha() and before not in rules.initial_before
