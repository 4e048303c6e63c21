"""Is this full stop the end of a sentence? What the words around it say."""

import re
from enum import Enum, auto

from judges.text.languages import SplitRules

_LABEL = re.compile(r"[\s>*_#+•–—-]*\(?(?:\d{1,3}(?:\.\d{1,3}){0,3}|[A-Za-z]|[ivxIVX]{1,5})\Z")
_ACRONYM = re.compile(r"[^\W\d_](?:\.-?[^\W\d_]{1,2})+\Z")
_ELISION = re.compile(r"\A\w{1,2}['’]")
_NUMERAL = re.compile(r"\d.*|[IVXLC]+|[A-Z]", re.DOTALL)
_OPENERS = "([{\"'“„«‚‘*_~"
_WINDOW = 48


class Stop(Enum):
    """What stands before a full stop, and so what has to follow for it to end the sentence."""

    PLAIN = auto()
    """An ordinary word: anything but a small letter."""
    NEVER = auto()
    """A title, a list label: nothing."""
    NUMBERED = auto()
    """"No.", "Art.", "Jan.": anything but a number or numeral."""
    LOOSE = auto()
    """"etc.", "p.m.": a capital that is no acronym or day."""
    ENDING = auto()
    """"Inc.", "U.S.": a word that usually opens a sentence."""
    INITIAL = auto()
    """"J.", "z.": the same, unless the letter is a name of its own ("a size M.")."""
    ORDINAL = auto()
    """"3.": anything that does not make it an ordinal."""


def classify(rules: SplitRules, text: str, start: int, at: int) -> tuple[Stop, str]:
    """What the full stop at ``text[at]`` of the sentence from ``start`` stands behind, and the word before that."""
    if at - start <= 16 and _LABEL.match(text, start, at):
        return Stop.NEVER, ""
    words = text[max(start, at - _WINDOW) : at].split()
    if not words:
        return Stop.PLAIN, ""
    word = _ELISION.sub("", words[-1].lstrip(_OPENERS)).casefold()
    previous = words[-2].lstrip(_OPENERS) if len(words) > 1 else ""
    keys = {word, previous.casefold() + word}
    for kind, table in (
        (Stop.NEVER, rules.titles),
        (Stop.NUMBERED, rules.numbered),
        (Stop.LOOSE, rules.loose),
        (Stop.ENDING, rules.ending),
    ):
        if keys & table:
            return kind, previous
    return _by_shape(word), previous


def _by_shape(word: str) -> Stop:
    if len(word) == 1 and word.isalpha():
        return Stop.INITIAL
    if word.isdecimal() and len(word) <= 3:
        return Stop.ORDINAL
    if _ACRONYM.match(word):
        return Stop.ENDING
    return Stop.PLAIN


def ends(rules: SplitRules, stop: Stop, before: str, initial: str, following: str) -> bool:
    """Whether the sentence ends at a stop other than a plain one.

    ``before``: the word before the abbreviated one, as it is written; ``initial``: the character before the stop;
    ``following``: the word that comes next, with its own stop if it has one.
    """
    word = following.casefold()
    starts = word in rules.starters
    match stop:
        case Stop.NEVER:
            return False
        case Stop.NUMBERED:
            return starts or not _NUMERAL.fullmatch(following)
        case Stop.LOOSE:
            return not (len(following) > 1 and following.isupper()) and word not in rules.calendar
        case Stop.ENDING:
            return starts
        case Stop.INITIAL:
            return starts or (initial.isupper() and _is_no_name(rules, before))
        case _:
            return starts or not (word in rules.ordinal_after or before.casefold() in rules.ordinal_before)


def _is_no_name(rules: SplitRules, before: str) -> bool:
    return before.islower() and before.isalpha() and before not in rules.initial_before
