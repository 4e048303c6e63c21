"""Finds the context needed to understand a claim: its heading, the lead-in of its list, the antecedent of its pronoun,
and the question it answers.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from judges.claims.known_text import fold
from judges.text.languages.rules import ClaimRules
from judges.text.markdown import HEADING, ITEM, is_row
from judges.types import BlockMarks, Sentence, Span

QUESTION = re.compile(r"[?？؟⁇⁈⁉][!?！？]{0,30}[)\]*_\s]{0,60}\Z")
END = re.compile(r"[.!?…。！？｡؟۔।॥][\"'”’»“)\]」』】\s]*\Z")
COLON = re.compile(r"[:：]\Z")
_TITLE_NUMBER = re.compile(r"\A\s*\d{1,2}[.)]\s+")
_TITLE = re.compile(r"\s*(\*\*|__)(?P<title>[^*_\n]{1,80})\1:?\s*\Z")
_NUMBERED = re.compile(r"\s*\(?\d{1,3}[.)]")
_NUMBER = re.compile(r"\A\s*+(?:>\s?){0,8}\(?(\d{1,3})[.)](?!\S)")
_LETTER = re.compile(r"\A\s*+(?:>\s?){0,8}\(?([A-Za-z])\)(?!\S)")
_SHOWN_NUMBER = re.compile(r"\A\s*+(?:>\s?){0,8}(?:\(|[A-Za-z]\))")
"""A number that isn't one of a list item in Markdown, so that it is part of the claim."""
_LIST_NUMBER = re.compile(r"\A[\s>*+•–—-]*\(?(?:\d{1,3}|[a-z])[.)]\s+")
"""The number of a list item in folded text."""
_NUMBERING = re.compile(r"\W*(?:(?P<digits>\d{1,3}(?:\.\d{1,3}){0,3})|(?P<letters>[ivx]{1,5}|[a-z]))[.)](?=\W)")
_ROMAN_LISTED = "i ii iii iv v vi vii viii ix x xi xii xiii xiv xv xvi xvii xviii xix xx"
_ROMAN = _ROMAN_LISTED.split()
_NUMBERED_TITLE = re.compile(rf"{_NUMBERED.pattern}\s+{_TITLE.pattern}")
_TITLES = frozenset("#*_")
"""Characters that a title can begin with."""
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+")
BOLD_LEVEL = 7
_HTML_TITLE = re.compile(r"\s*<(?P<tag>b|strong|h[1-6])>[^<\n.!?]{1,80}</(?P=tag)>:?\s*\Z", re.IGNORECASE)
_UNDERLINE = re.compile(r"\s{0,3}(?:-+|=+)[ \t]*\n\s*\Z")
_BLANK_LINE = re.compile(r"\n[^\n\S]*\n")
_MAX_TITLE_WORDS = 8
_MAX_LEAD_INS = 4
"""The maximum number of lead-ins, each directly below the one before it, that introduce the same text."""
_MAX_FRAGMENT_WORDS = 5
"""A claim with at most this many words may be a fragment that can't be understood without its heading."""
_MAX_LOOK_BACK = 64
_ASKED = re.compile(r"[?？](?!\S)")
_LABEL = re.compile(r"[*_]{0,2}[^\W\d_]{2,12}[*_]{0,2}:(?!/)[*_]{0,2}")
_MAX_QUESTION = 300


def last_question(text: str) -> str:
    """Return the last question in ``text``, without a preceding label ("Question: ..."), or "" if there is none."""
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
    """The lines that introduce a list item or the text directly below them, nearest last: the heading, the parent item,
    and the lead-in that ends with a colon. For a sentence that isn't ``introduced``, only the heading."""

    heading: str
    lines: tuple[str, ...] = ()
    nearest: str = ""
    """The introducing line closest to an item, or the heading if there is none. Unlike ``lines``, this includes lines
    that make no claim ("Here are the steps:")."""
    introduced: bool = True

    @property
    def context(self) -> Sequence[str]:
        """The lines as context of the text that they introduce."""
        return [self.heading, *self.lines] if self.introduced else []


class ContextFinder:
    """Finds the context of claims. ``stated`` returns the claims in a sentence as one text, or "" if there are none.
    ``names`` returns whether an introduction names what it introduces ("Here are the steps for children:")."""

    def __init__(self, rules: ClaimRules, stated: Callable[[Sentence], str], names: Callable[[str], bool]) -> None:
        self._rules = rules
        self._stated = stated
        self._names = lru_cache(maxsize=256)(names)
        self.points_back = lru_cache(maxsize=256)(self._read_points_back)
        """Whether a text begins with a pronoun or connective that refers to a preceding sentence."""

    def above(self, sentence: Sentence, previous: Sequence[Sentence]) -> OuterLines:
        """Find the lines that introduce ``sentence`` among the ``previous`` sentences."""
        recent = [one for one in previous[-_MAX_LOOK_BACK:] if one.index >= 0]
        return self._above(sentence, recent)

    def _above(self, sentence: Sentence, recent: Sequence[Sentence], depth: int = 0) -> OuterLines:
        if starts_item(sentence):
            return self._above_item(sentence, recent)
        return self._above_text(sentence, recent, depth)

    def _above_item(self, sentence: Sentence, recent: Sequence[Sentence]) -> OuterLines:
        listed, nearest = True, ""
        below, indent = sentence, indent_after(recent)
        lines: list[str] = []
        for place in range(len(recent) - 1, -1, -1):
            earlier, before = recent[place], recent[:place]
            if (title := _title_at(recent, place)) is not None:
                return OuterLines(self._heading(title), tuple(reversed(lines)), nearest or f"{title.plain}:")
            if not listed:
                continue
            parent = starts_item(earlier) and _is_above(earlier, indent_after(before), below, indent)
            if COLON.search(earlier.plain) or parent:
                nearest = nearest or earlier.plain
                told = self._told(earlier)
                lines += told
                below, indent = earlier, indent_after(before)
                listed = parent or (not told and bool(before) and COLON.search(before[-1].plain) is not None)
            elif not starts_item(earlier) and not (before and "\n" not in before[-1].text):
                listed = False
        return OuterLines("", tuple(reversed(lines)), nearest)

    def _above_text(self, sentence: Sentence, recent: Sequence[Sentence], depth: int) -> OuterLines:
        """Find the lines that introduce a sentence that is no list item: those directly above its paragraph. A fragment
        may also be further below, among other fragments and list items. ``depth`` is the number of lead-ins between."""
        place = _introduction_of(sentence, recent) if depth < _MAX_LEAD_INS else None
        if place is not None and _title_at(recent, place) is None:
            outer = self._above(recent[place], recent[:place], depth + 1)
            lines = (*(outer.lines if outer.introduced else ()), *self._told(recent[place]))
            return OuterLines(outer.heading, lines)
        titles = (_title_at(recent, at) for at in range(len(recent) - 1, -1, -1))
        title = next(filter(None, titles), None)
        if title is None:
            return OuterLines("", introduced=False)
        return OuterLines(self._heading(title), nearest=f"{title.plain}:", introduced=place is not None)

    def _told(self, line: Sentence) -> Sequence[str]:
        """Return the text of a line that introduces others, unless it makes no claim."""
        is_general = self._rules.meta.match(fold(line.plain)) and not self._names(line.plain)
        return () if is_general else (line.plain,)

    def context_of(
        self,
        sentence: Sentence,
        text: str,
        previous: Sequence[Sentence],
        before: str | None,
        above: OuterLines,
    ) -> tuple[str, str]:
        """Return the context of a claim and the question that the claim answers; either is "" if there is none.

        Args:
            sentence: the sentence that contains the claim.
            text: the claim.
            previous: the preceding sentences, in order.
            before: the preceding claim in the same sentence.
            above: the lines that introduce the sentence.
        """
        contexts = [*above.context]
        if points_back := self.points_back(text):
            contexts.append(self._referent(text, previous) if before is None else before)
        if any(contexts) or before is not None:
            return joined(contexts), ""
        if question := self._question(sentence, previous):
            return "", question
        if above.heading and (points_back or sum(map(has_words, text.split())) <= _MAX_FRAGMENT_WORDS):
            return above.heading, ""
        return "", ""

    def _referent(self, text: str, previous: Sequence[Sentence]) -> str:
        """Return the claim that ``text`` refers back to. If ``text`` begins with a pronoun, this is the last claim that
        names its subject. If it begins with a connective, this is the last claim.
        """
        begins_with_pronoun = self._rules.pronouns.match(_without_number(text))
        return self._antecedent(previous) if begins_with_pronoun else self._statement_before(previous)

    def _antecedent(self, previous: Sequence[Sentence]) -> str:
        """Return the last claim that names its subject, or the last claim if none does."""
        nearest = ""
        for text in self._statements(previous):
            if not self.points_back(text):
                return text
            nearest = nearest or text
        return nearest

    def _statement_before(self, previous: Sequence[Sentence]) -> str:
        """Return the last claim, preceded by the claim that it refers back to."""
        nearest = next(self._statements(previous), "")
        if not nearest or not self.points_back(nearest):
            return nearest
        named = self._antecedent(previous)
        return nearest if named == nearest else f"{named} {nearest}"

    def _statements(self, previous: Sequence[Sentence]) -> Iterator[str]:
        """Yield the preceding claims, last one first, up to and including the nearest heading."""
        for sentence in reversed(previous[-_MAX_LOOK_BACK:]):
            if sentence.index < 0:
                return
            if is_title(sentence):
                if heading := self._heading(sentence):
                    yield heading
                    return
            elif stated := self._stated(sentence):
                yield stated

    def asked_before(
        self, previous: Sequence[Sentence], message: str | None, is_courtesy: Callable[[str], bool]
    ) -> tuple[str | None, bool]:
        """Return the text that a "yes" after ``previous`` may answer, and whether a claim follows that text. The text
        is the nearest question, label or refusal, or else the user's ``message``. A label or refusal counts only if
        nothing but courtesies follow it."""
        stated = False
        for sentence in reversed(previous[-_MAX_LOOK_BACK:]):
            if sentence.index < 0:
                break
            if QUESTION.search(sentence.plain):
                return sentence.plain, stated
            if sentence.in_code or is_row(sentence) or self._stated(sentence):
                stated = True
            elif not stated and has_words(sentence.plain) and not is_courtesy(sentence.plain):
                return sentence.plain, False
        return message, stated

    def _question(self, sentence: Sentence, previous: Sequence[Sentence]) -> str:
        """Return the last question if no claim follows it, otherwise "". For a list item or a fragment, other items and
        fragments may follow it."""
        is_listed = _is_listed(sentence)
        for earlier in reversed(previous[-_MAX_LOOK_BACK:]):
            if QUESTION.search(earlier.plain) or earlier.index < 0:
                return earlier.plain
            if is_title(earlier) or (self._stated(earlier) and not (is_listed and _is_listed(earlier))):
                break
        return ""

    @staticmethod
    def unexpected_number(sentence: Sentence, previous: Sequence[Sentence], *, label: bool = False) -> str:
        """Return the number of a list item (or, with ``label``, of a label) if the number before it is missing ("8."
        without a "7."). Otherwise, and for the first number, return ""."""
        if not label and (sentence.marks is BlockMarks.TEXT or _SHOWN_NUMBER.match(sentence.text)):
            return ""
        numbers = _numbers_of(sentence.text, sentence.plain if label else "")
        if not numbers:
            return ""
        wanted = {before for number in numbers for before in _before(number)}
        if () in wanted:
            return ""
        for earlier in reversed(previous[-_MAX_LOOK_BACK:]):
            if not wanted.isdisjoint(_numbers_of(earlier.text, earlier.plain)):
                return ""
        number = min(numbers)
        is_letter = number[0] == "letter" and number[1]
        return f"{chr(ord('A') + int(number[1]) - 1) if is_letter else number[-1]}."

    def _heading(self, title: Sentence) -> str:
        """Return the text of a heading, or "" for a generic one such as "Summary"."""
        return "" if self._rules.headings.match(fold(title.plain)) else title.plain.rstrip(":： ")

    def _read_points_back(self, text: str) -> bool:
        folded = _without_number(text)
        return bool(self._rules.pronouns.match(folded) or self._rules.connectives.match(folded))


def joined(contexts: Iterable[str]) -> str:
    """Return lines of context as one text, without repetitions."""
    return " ".join(dict.fromkeys(context for context in contexts if context))


def has_words(text: str) -> bool:
    """Return whether ``text`` contains a word. Punctuation and addresses don't count as words."""
    if "://" in text or "www." in text:
        text = _ADDRESS.sub("", text)
    return any(map(str.isalnum, text))


def _without_number(text: str) -> str:
    """Return ``text`` folded and without the number of a list item, which is part of a claim where it isn't markup."""
    return _LIST_NUMBER.sub("", fold(text))


def starts_item(sentence: Sentence) -> bool:
    """Return whether ``sentence`` is a list item or the first sentence of one."""
    return bool(ITEM.match(sentence.text))


def is_numbered(sentence: Sentence) -> bool:
    """Return whether ``sentence`` begins with the number of a list item."""
    return bool(_NUMBERED.match(sentence.text))


def asked_sentence(question: str) -> Sentence:
    """Return the question as the sentence before a reply."""
    return Sentence(index=-1, text=f"{question}\n\n", span=Span(0, 0), plain=question)


@lru_cache(maxsize=256)
def _numbers_of(raw: str, plain: str) -> frozenset[tuple[int | str, ...]]:
    """Return the possible meanings of the number that a text begins with: (8, 1) for "8.1.", but ("roman", 5) and
    ("letter", 22) for "v)". In ``raw``, only the number of a list item counts; in ``plain``, any numbering does."""
    if found := _NUMBER.match(raw):
        return frozenset([(int(found[1]),)])
    if found := _LETTER.match(raw):
        return _letters(found[1].lower())
    found = _NUMBERING.match(plain.lower())
    if found is None:
        return frozenset()
    if found["digits"]:
        return frozenset([tuple(map(int, found["digits"].split(".")))])
    return _letters(found["letters"])


def _letters(letters: str) -> frozenset[tuple[int | str, ...]]:
    """Return the possible meanings of a number that is written with letters."""
    readings: set[tuple[int | str, ...]] = {("letter", ord(letters) - ord("a") + 1)} if len(letters) == 1 else set()
    if letters in _ROMAN:
        readings.add(("roman", _ROMAN.index(letters) + 1))
    return frozenset(readings or [("letter", 0)])


def _before(number: tuple[int | str, ...]) -> Sequence[tuple[int | str, ...]]:
    """Return the numbers that may come directly before ``number``. If ``number`` can be the first, () is among them."""
    *outer, last = number
    if last != 1:
        return [(*outer, int(last) - 1)]
    return [()] if not outer or isinstance(outer[0], str) else [tuple(outer)]


def continues_table(above: Sentence) -> bool:
    """Return whether a row below ``above`` belongs to the same table."""
    return is_row(above) and "\n\n" not in above.text


def title_level(sentence: Sentence) -> int:
    """Return the level of a heading: 1 to 6, or ``BOLD_LEVEL`` for a bold line that serves as one."""
    text = sentence.text.lstrip()
    return len(text) - len(text.lstrip("#")) or BOLD_LEVEL


def is_title(sentence: Sentence) -> bool:
    """Return whether ``sentence`` is a heading or a short bold line that serves as one."""
    if sentence.text.lstrip()[:1] not in _TITLES:
        return False
    if HEADING.match(sentence.text):
        return True
    title = _TITLE.match(sentence.text)
    if not title:
        return False
    words = _TITLE_NUMBER.sub("", title["title"])
    return len(words.split()) <= _MAX_TITLE_WORDS and not END.search(words) and not any(ch.isdecimal() for ch in words)


def _title_at(recent: Sequence[Sentence], place: int) -> Sentence | None:
    """Return the heading that ends with the sentence at ``place``, or None. A line below the heading may mark it."""
    sentence = recent[place]
    if is_title(sentence) or _HTML_TITLE.match(sentence.text):
        return sentence
    is_marked = place > 0 and _UNDERLINE.match(sentence.text) and _is_single_line(recent[place - 1].text)
    # Of a list item that was left out, only the bullet is left.
    is_whole = len(sentence.text) == sentence.span.end - sentence.span.start
    return recent[place - 1] if is_marked and is_whole else None


def _is_single_line(text: str) -> bool:
    """Return whether a line follows ``text`` in the same paragraph, as in a heading that is marked by the line."""
    return "\n" in text and "\n" not in text.strip() and not _BLANK_LINE.search(text) and any(map(str.isalnum, text))


def _introduction_of(sentence: Sentence, recent: Sequence[Sentence]) -> int | None:
    """Return the place of the heading or lead-in that introduces ``sentence``, which is no list item."""
    is_fragment, in_paragraph = _is_listed(sentence), True
    for place in range(len(recent) - 1, -1, -1):
        earlier = recent[place]
        if _title_at(recent, place) is not None or COLON.search(earlier.plain):
            return place
        if not has_words(earlier.plain):
            continue
        if COLON.search(sentence.plain):  # it begins a new list, below another one
            return None
        in_paragraph = in_paragraph and not _BLANK_LINE.search(earlier.text) and not starts_item(earlier)
        if not in_paragraph and not (is_fragment and _is_listed(earlier)):
            return None
    return None


def _is_listed(sentence: Sentence) -> bool:
    """Return whether ``sentence`` is a list item, or so short that it may be one of several things that are listed."""
    return starts_item(sentence) or sum(map(has_words, sentence.plain.split())) <= _MAX_FRAGMENT_WORDS


def _is_above(earlier: Sentence, its_indent: int, below: Sentence, indent: int) -> bool:
    """Return whether ``below`` is part of the item ``earlier``: it is indented further, or is a bullet under a numbered
    title."""
    return its_indent < indent or bool(_NUMBERED_TITLE.match(earlier.text) and not _NUMBERED.match(below.text))


def indent_after(before: Sequence[Sentence]) -> int:
    """Return the indentation of the sentence after ``before``, read from the whitespace at the end of ``before``."""
    _, line, space = before[-1].text.rpartition("\n") if before else ("", "", "")
    return len(space.expandtabs(4)) if line and not space.strip() else 0
