"""What a claim cannot be understood without: the heading above it, the line its list stands under, what it points back
to, the question that it answers."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from judges.text.languages import ClaimRules
from judges.text.markdown import HEADING, ITEM
from judges.types import Sentence

QUESTION = re.compile(r"[?？؟⁇⁈⁉][!?！？]{0,30}[)\]*_\s]{0,60}\Z")
END = re.compile(r"[.!?…。！？｡؟۔।॥][\"'”’»“)\]」』】\s]*\Z")
COLON = re.compile(r"[:：]\Z")
_TITLE = re.compile(r"\s*(\*\*|__)(?P<title>[^*_\n]{1,80})\1:?\s*\Z")
_NUMBERED = re.compile(r"\s*\(?\d{1,3}[.)]")
_NUMBERED_TITLE = re.compile(rf"{_NUMBERED.pattern}\s+{_TITLE.pattern}")
_TITLES = frozenset("#*_")
"""What a title begins with."""
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+")
_PLAIN_LETTERS = str.maketrans("’ʼİ", "''I")
_MAX_TITLE_WORDS = 8
_MAX_FRAGMENT_WORDS = 5
"""A claim as short as this may be no sentence, and say nothing without what stands above it."""
_MAX_BACK = 64
_ASKED = re.compile(r"[?？](?!\S)")
_LABEL = re.compile(r"[*_]{0,2}[^\W\d_]{2,12}[*_]{0,2}:(?!/)[*_]{0,2}")
_MAX_QUESTION = 300


def last_question(text: str) -> str:
    """The last question of ``text``, without a label before it ("Question: ..."); "" where it asks nothing."""
    marks = [found.end() for found in _ASKED.finditer(text)]
    if not marks:
        return ""
    start = least = max(0, marks[-1] - _MAX_QUESTION)
    for place in range(marks[-1] - 2, least - 1, -1):
        if text[place] == "\n" or (text[place] in ".!?？" and text[place + 1].isspace()):
            start = place + 1
            break
    asked = text[start : marks[-1]].lstrip()
    label = _LABEL.match(asked)
    asked = asked[label.end() :].lstrip() if label else asked
    return asked if has_words(asked) else ""


class Above(Struct, frozen=True):
    """What stands above an item of a list, the nearest last: a heading, the item that it is a part of, the line with a
    colon. Above another sentence: the heading."""

    heading: str
    lines: tuple[str, ...] = ()
    nearest: str = ""
    """The last of them, even where it says nothing."""


class Contexts:
    """Finds the context of claims. ``stated`` gives what a sentence claims, or ""."""

    def __init__(self, rules: ClaimRules, stated: Callable[[Sentence], str]) -> None:
        self._rules = rules
        self._stated = stated

    def above(self, sentence: Sentence, previous: Sequence[Sentence]) -> Above:
        """What stands above ``sentence``, of what went before it."""
        recent = [one for one in previous[-_MAX_BACK:] if one.index >= 0]
        listed, nearest = starts_item(sentence), ""
        below, indent = sentence, _indent(recent)
        lines: list[str] = []
        for place in range(len(recent) - 1, -1, -1):
            earlier, before = recent[place], recent[:place]
            if is_title(earlier):
                return Above(self._telling(earlier), tuple(reversed(lines)), nearest or f"{earlier.plain}:")
            if not listed:
                continue
            parent = starts_item(earlier) and _is_above(earlier, _indent(before), below, indent)
            if COLON.search(earlier.plain) or parent:
                nearest = nearest or earlier.plain
                lines += [] if self._rules.meta.match(fold(earlier.plain)) else [earlier.plain]
                below, indent, listed = earlier, _indent(before), parent
            elif not starts_item(earlier) and not (before and "\n" not in before[-1].text):
                listed = False
        return Above("", tuple(reversed(lines)), nearest)

    def of(
        self, sentence: Sentence, text: str, asked: str, previous: Sequence[Sentence], before: str | None, above: Above
    ) -> tuple[str, str]:
        """The context of ``text``, a claim of ``sentence``, and the question that it answers. ``asked``: the one that
        the sentence repeats; ``before``: the claim that it makes before this one."""
        contexts = [above.heading, *above.lines] if starts_item(sentence) else []
        if points_back := self._points_back(text):
            contexts.append(self._meant(text, previous) if before is None else before)
        if any(contexts) or before is not None:
            return " ".join(dict.fromkeys(context for context in contexts if context)), ""
        if question := asked or self._question(previous):
            return "", question
        return above.heading if points_back or count(text) <= _MAX_FRAGMENT_WORDS else "", ""

    def _meant(self, text: str, previous: Sequence[Sentence]) -> str:
        """What ``text`` points back to: by a pronoun to what was named last, by a connective to what was said last."""
        return (
            self._antecedent(previous) if self._rules.pronouns.match(fold(text)) else self._statement_before(previous)
        )

    def _antecedent(self, previous: Sequence[Sentence]) -> str:
        """The last claim that names what it is about; the last claim, if all of them point back."""
        nearest = ""
        for text in self._statements(previous):
            if not self._points_back(text):
                return text
            nearest = nearest or text
        return nearest

    def _statement_before(self, previous: Sequence[Sentence]) -> str:
        """The last claim, behind the one that it points back to itself."""
        nearest = next(self._statements(previous), "")
        if not nearest or not self._points_back(nearest):
            return nearest
        named = self._antecedent(previous)
        return nearest if named == nearest else f"{named} {nearest}"

    def _statements(self, previous: Sequence[Sentence]) -> Iterator[str]:
        """What was claimed, the last first, as far as the heading, which is the last of them."""
        for sentence in reversed(previous[-_MAX_BACK:]):
            if sentence.index < 0:
                return
            if is_title(sentence):
                if heading := self._telling(sentence):
                    yield heading
                    return
            elif stated := self._stated(sentence):
                yield stated

    def _question(self, previous: Sequence[Sentence]) -> str:
        """The last question before, if nothing was said after it."""
        for sentence in reversed(previous[-_MAX_BACK:]):
            if QUESTION.search(sentence.plain) or sentence.index < 0:
                return sentence.plain
            if is_title(sentence) or self._stated(sentence):
                break
        return ""

    def _telling(self, title: Sentence) -> str:
        """What a heading says, "" for one such as "Summary"."""
        return "" if self._rules.headings.match(fold(title.plain)) else title.plain.rstrip(":： ")

    def _points_back(self, text: str) -> bool:
        folded = fold(text)
        return bool(self._rules.pronouns.match(folded) or self._rules.connectives.match(folded))


@lru_cache(maxsize=512)
def fold(text: str) -> str:
    """``text`` in small letters, as long as it was."""
    return text.translate(_PLAIN_LETTERS).lower()


def count(text: str) -> int:
    """How many words ``text`` has; punctuation by itself is none."""
    return sum(map(has_words, text.split()))


def has_words(text: str) -> bool:
    return any(ch.isalnum() for ch in _ADDRESS.sub("", text))


def starts_item(sentence: Sentence) -> bool:
    """Whether it is an item of a list, or the first sentence of one."""
    return bool(ITEM.match(sentence.text))


def is_title(sentence: Sentence) -> bool:
    """A heading, or a short line in bold that is used as one."""
    if sentence.text.lstrip()[:1] not in _TITLES:
        return False
    if HEADING.match(sentence.text):
        return True
    title = _TITLE.match(sentence.text)
    if not title:
        return False
    words = title["title"]
    return len(words.split()) <= _MAX_TITLE_WORDS and not END.search(words) and not any(ch.isdecimal() for ch in words)


def _is_above(earlier: Sentence, its_indent: int, below: Sentence, indent: int) -> bool:
    """Whether an item has the other as its own: that stands further in, or it is a numbered title and that a bullet."""
    return its_indent < indent or bool(_NUMBERED_TITLE.match(earlier.text) and not _NUMBERED.match(below.text))


def _indent(before: Sequence[Sentence]) -> int:
    """How far in the sentence behind ``before`` stands: the white space of its line is theirs."""
    _, line, space = before[-1].text.rpartition("\n") if before else ("", "", "")
    return len(space.expandtabs(4)) if line and not space.strip() else 0
