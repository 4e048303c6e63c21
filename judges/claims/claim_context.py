"""The context that a claim cannot be understood without: its heading, the lead-in of its list, the antecedent of its
pronoun, the question it answers."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from judges.text.languages.rules import ClaimRules
from judges.text.markdown import HEADING, ITEM
from judges.types import Sentence

QUESTION = re.compile(r"[?？؟⁇⁈⁉][!?！？]{0,30}[)\]*_\s]{0,60}\Z")
END = re.compile(r"[.!?…。！？｡؟۔।॥][\"'”’»“)\]」』】\s]*\Z")
COLON = re.compile(r"[:：]\Z")
_TITLE = re.compile(r"\s*(\*\*|__)(?P<title>[^*_\n]{1,80})\1:?\s*\Z")
_NUMBERED = re.compile(r"\s*\(?\d{1,3}[.)]")
_NUMBERED_TITLE = re.compile(rf"{_NUMBERED.pattern}\s+{_TITLE.pattern}")
_TITLES = frozenset("#*_")
"""Characters that a title begins with."""
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+")
_PLAIN_LETTERS = str.maketrans("’ʼİ", "''I")
_MAX_TITLE_WORDS = 8
_MAX_FRAGMENT_WORDS = 5
"""A claim this short may be a fragment that means nothing without the heading above it."""
_MAX_LOOK_BACK = 64
_ASKED = re.compile(r"[?？](?!\S)")
_LABEL = re.compile(r"[*_]{0,2}[^\W\d_]{2,12}[*_]{0,2}:(?!/)[*_]{0,2}")
_MAX_QUESTION = 300


def last_question(text: str) -> str:
    """The last question of ``text``, without a label before it ("Question: ..."); "" if there is none."""
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


class OuterLines(Struct, frozen=True):
    """What is above a list item, nearest last: the heading, the item it belongs to, the lead-in with a colon. Above any
    other sentence, only the heading."""

    heading: str
    lines: tuple[str, ...] = ()
    nearest: str = ""
    """The last of them, even if it says nothing."""


class ContextFinder:
    """Finds the context of claims. ``stated`` returns what a sentence claims, or ""."""

    def __init__(self, rules: ClaimRules, stated: Callable[[Sentence], str]) -> None:
        self._rules = rules
        self._stated = stated
        self._points_back = lru_cache(maxsize=256)(self._read_points_back)

    def above(self, sentence: Sentence, previous: Sequence[Sentence]) -> OuterLines:
        """The lines above ``sentence``, from the sentences before it."""
        recent = [one for one in previous[-_MAX_LOOK_BACK:] if one.index >= 0]
        listed, nearest = starts_item(sentence), ""
        below, indent = sentence, _indent(recent)
        lines: list[str] = []
        for place in range(len(recent) - 1, -1, -1):
            earlier, before = recent[place], recent[:place]
            if is_title(earlier):
                return OuterLines(self._heading(earlier), tuple(reversed(lines)), nearest or f"{earlier.plain}:")
            if not listed:
                continue
            parent = starts_item(earlier) and _is_above(earlier, _indent(before), below, indent)
            if COLON.search(earlier.plain) or parent:
                nearest = nearest or earlier.plain
                lines += [] if self._rules.meta.match(fold(earlier.plain)) else [earlier.plain]
                below, indent, listed = earlier, _indent(before), parent
            elif not starts_item(earlier) and not (before and "\n" not in before[-1].text):
                listed = False
        return OuterLines("", tuple(reversed(lines)), nearest)

    def context_of(
        self,
        sentence: Sentence,
        text: str,
        question: str,
        previous: Sequence[Sentence],
        before: str | None,
        above: OuterLines,
    ) -> tuple[str, str]:
        """The context of a claim, and the question that it answers; "" for none.

        Args:
            sentence: the sentence of the claim.
            text: the claim.
            question: a question that the sentence repeats.
            previous: the sentences before it, in order.
            before: the claim before this one in the same sentence.
            above: the lines above the sentence.
        """
        contexts = [above.heading, *above.lines] if starts_item(sentence) else []
        if points_back := self._points_back(text):
            contexts.append(self._referent(text, previous) if before is None else before)
        if any(contexts) or before is not None:
            return " ".join(dict.fromkeys(context for context in contexts if context)), ""
        if question := question or self._question(previous):
            return "", question
        return above.heading if points_back or count_words(text) <= _MAX_FRAGMENT_WORDS else "", ""

    def _referent(self, text: str, previous: Sequence[Sentence]) -> str:
        """What ``text`` refers back to: for a pronoun, what was named last; for a connective, what was said last."""
        return (
            self._antecedent(previous) if self._rules.pronouns.match(fold(text)) else self._statement_before(previous)
        )

    def _antecedent(self, previous: Sequence[Sentence]) -> str:
        """The last claim that names its subject; the last claim, if none does."""
        nearest = ""
        for text in self._statements(previous):
            if not self._points_back(text):
                return text
            nearest = nearest or text
        return nearest

    def _statement_before(self, previous: Sequence[Sentence]) -> str:
        """The last claim, preceded by the one that it refers back to."""
        nearest = next(self._statements(previous), "")
        if not nearest or not self._points_back(nearest):
            return nearest
        named = self._antecedent(previous)
        return nearest if named == nearest else f"{named} {nearest}"

    def _statements(self, previous: Sequence[Sentence]) -> Iterator[str]:
        """The claims made so far, last first, up to the heading, which ends them."""
        for sentence in reversed(previous[-_MAX_LOOK_BACK:]):
            if sentence.index < 0:
                return
            if is_title(sentence):
                if heading := self._heading(sentence):
                    yield heading
                    return
            elif stated := self._stated(sentence):
                yield stated

    def question_before(self, previous: Sequence[Sentence]) -> str:
        """The last question before a sentence; the user's if there is none nearby."""
        asked = previous[0].plain if previous and previous[0].index < 0 else ""
        recent = reversed(previous[-_MAX_LOOK_BACK:])
        return next((one.plain for one in recent if QUESTION.search(one.plain)), asked)

    def _question(self, previous: Sequence[Sentence]) -> str:
        """The last question, if nothing was claimed after it."""
        for sentence in reversed(previous[-_MAX_LOOK_BACK:]):
            if QUESTION.search(sentence.plain) or sentence.index < 0:
                return sentence.plain
            if is_title(sentence) or self._stated(sentence):
                break
        return ""

    def _heading(self, title: Sentence) -> str:
        """The text of a heading; "" for a generic one such as "Summary"."""
        return "" if self._rules.headings.match(fold(title.plain)) else title.plain.rstrip(":： ")

    def _read_points_back(self, text: str) -> bool:
        folded = fold(text)
        return bool(self._rules.pronouns.match(folded) or self._rules.connectives.match(folded))


@lru_cache(maxsize=512)
def fold(text: str) -> str:
    """``text`` in lower case, with the same length."""
    return text.translate(_PLAIN_LETTERS).lower()


def count_words(text: str) -> int:
    """The number of words in ``text``; punctuation alone is not a word."""
    return sum(map(has_words, text.split()))


def has_words(text: str) -> bool:
    return any(ch.isalnum() for ch in _ADDRESS.sub("", text))


def starts_item(sentence: Sentence) -> bool:
    """Whether ``sentence`` is a list item or the first sentence of one."""
    return bool(ITEM.match(sentence.text))


def is_title(sentence: Sentence) -> bool:
    """Whether ``sentence`` is a heading, or a short line in bold used as one."""
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
    """Whether one item contains the other: that is indented further, or is a bullet below a numbered title."""
    return its_indent < indent or bool(_NUMBERED_TITLE.match(earlier.text) and not _NUMBERED.match(below.text))


def _indent(before: Sequence[Sentence]) -> int:
    """The indentation of the sentence after ``before``, whose white space it is."""
    _, line, space = before[-1].text.rpartition("\n") if before else ("", "", "")
    return len(space.expandtabs(4)) if line and not space.strip() else 0
