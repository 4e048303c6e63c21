"""Recognises text that states nothing, by a closed list with conditions.

A courtesy, an announcement, a question to the user, a refusal or a label is harmless if it is alone and names nothing
beyond the question and the documents. The judge reads everything that is not recognised here.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from judges.claims.known_text import KnownText
from judges.features.numbers import vocabulary
from judges.features.words import lexicon
from judges.features.words.document_text import words_of
from judges.text.languages.rules import LANGUAGES, claim_rules

_END_MARKS: Final = '.!…。！,:：)]"”’*_'
_START: Final = re.compile(r"[\s(\[\"“‘*_¡¿–—-]*")
_QUESTION: Final = re.compile(r"[?？]\s*\Z")
_SUBORDINATE: Final = re.compile(
    r"\s*(?:whether|if|how|what|when|which|who|whose|where|why|or|nor|and (?:i|we) |ob|wie|was|wann"
    r"|welche\w*|wer|wo|oder|noch|si|comment|quand|quel\w*|qui|où|ou|cómo|cuándo|cuál\w*|quién|dónde|o|ni)\b"
)
_CLAUSE: Final = re.compile(r"[,;:–—](?=\s)|\b(?:but|however|aber|jedoch|mais|pero|sino)\b")
_NUMBERING: Final = re.compile(r"\A(?:\d{1,2}(?:\.\d{1,2}){0,3}[.)]?|[ivx]{1,5}[.)]|[a-z][.)])\s+")
_MAX_LABEL_WORDS: Final = 16
_MAX_TOPIC_CHARS: Final = 160
_LETTERS: Final = str.maketrans("’ʼİ", "''I")

_STATING_LISTED = (
    "is are was were isn't aren't wasn't weren't be been being becomes become became has had will would must "
    "shall should cannot can't won't don't doesn't didn't costs cost equals means requires allows permits ist "
    "sind war waren wird werden muss müssen darf dürfen kostet beträgt gilt gelten est sont était étaient sera "
    "seront doit doivent coûte es son era eran está están será serán debe deben cuesta"
)
_STATING: Final = frozenset(_STATING_LISTED.split())
"""Verbs that make a heading or a topic a statement."""
_COUNTED: Final = (
    frozenset(vocabulary.NUMBER_WORDS) | frozenset(vocabulary.SCALES) | vocabulary.HOW_OFTEN - vocabulary.ONE
)
_WITHOUT: Final = frozenset(["without", "ohne", "sans", "sin"])
_LIMITING: Final = (
    lexicon.NEGATIONS | vocabulary.MORE_THAN | vocabulary.LESS_THAN | vocabulary.AT_MOST | vocabulary.CHANGED
).union(
    [
        "minimum",
        "maximum",
        "least",
        "without",
        "except",
        "only",
        "twice",
        "double",
        "half",
        "free",
        "never",
        "always",
        "all",
        "none",
        "every",
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The closed lists of all languages, merged and compiled."""

    courtesies: re.Pattern[str]
    prefixes: re.Pattern[str]
    tags: re.Pattern[str]
    questions: re.Pattern[str]
    answers: re.Pattern[str]
    open_questions: re.Pattern[str]
    closed: re.Pattern[str]
    words: frozenset[str]


class HarmlessText:
    """Decides which clauses, headings and questions of one reply state nothing. ``known`` is the request's text."""

    def __init__(self, known: KnownText, languages: Sequence[str] = LANGUAGES) -> None:
        self._known = known
        self._table = _table(tuple(languages))
        self._rules = claim_rules(tuple(languages))

    def prefix(self, text: str) -> int:
        """The length of the introduction of ``text``: a courtesy before a comma, "I think that", "Did you know that". 0
        if there is none, or nothing follows."""
        folded, at = _fold(text), 0
        while (end := self._prefix(folded, at)) > at:
            at = end
        return at

    def suffix(self, text: str) -> int:
        """The position of a question tag at the end of ``text`` (", right?"); its length if there is none."""
        found = self._table.tags.search(_fold(text))
        return found.start() if found and found.start() else len(text)

    def is_courtesy(self, text: str) -> bool:
        """Whether ``text`` as a whole is a courtesy or an announcement."""
        found = self._table.courtesies.fullmatch(_bare(text))
        return found is not None and self._knows_topics(found)

    def is_question(self, text: str) -> bool:
        """Whether ``text`` is a question to the user that names nothing new, or repeats the user's own question."""
        if not _QUESTION.search(text):
            return False
        if self._known.asks(text):
            return True
        folded = _bare(text)
        if self._table.questions.match(folded):
            return not self._names_something(folded)
        return self._table.open_questions.match(folded) is not None and self._knows(words_of(folded))

    def has_verb(self, text: str) -> bool:
        """Whether ``text`` has one of the verbs with which headings and comments state something."""
        return not _STATING.isdisjoint(words_of(text))

    def refusal(self, text: str) -> int:
        """The length of a refusal at the start of ``text`` that names nothing beyond the question and the documents; 0
        if there is none."""
        folded = _fold(text)
        filler = self._rules.fillers.match(folded)
        found = self._rules.refusals.match(folded, filler.end() if filler else 0) or self._rules.refusals.match(folded)
        if found is None:
            return 0
        end = len(folded)
        for mark in _CLAUSE.finditer(folded, found.end()):
            if not _SUBORDINATE.match(folded, mark.end()):
                end = mark.end()
                break
        return end if self._knows(words_of(folded[found.end() : end])) else 0

    def is_label(self, text: str, *, numbers: bool = False) -> bool:
        """Whether ``text``, a heading, a table header or a lead-in, uses only words of the question, of the documents,
        or of any text. ``numbers``: numbers of theirs are allowed too, as in the name of a source."""
        folded = _NUMBERING.sub("", _bare(text).rstrip(":： "), count=1)
        if self._table.courtesies.fullmatch(folded) and self.is_courtesy(folded):
            return True
        words = words_of(folded)
        if len(words) > _MAX_LABEL_WORDS or not _STATING.isdisjoint(words):
            return False
        return (numbers or not any(word[0].isdigit() for word in words)) and self._knows(words)

    def introduces(self, text: str) -> bool:
        """Whether ``text``, the introduction of a statement, names nothing beyond the question and the documents."""
        return self._knows(words_of(text))

    def is_answer(self, text: str) -> bool:
        """Whether ``text`` is a "yes" or "no", in form."""
        return self._table.answers.fullmatch(_bare(text)) is not None

    def answers(self, text: str, question: str) -> bool:
        """Whether ``text``, which is an answer in form, states what the question asks. One that may also be a courtesy
        ("Of course!") does so only after a yes-or-no question."""
        return self._table.courtesies.fullmatch(_bare(text)) is None or self._is_closed(question)

    def _is_closed(self, question: str) -> bool:
        """Whether ``question`` can be answered with yes or no."""
        return _QUESTION.search(question) is not None and self._table.closed.search(_fold(question)) is not None

    def _prefix(self, folded: str, at: int) -> int:
        begin = start.end() if (start := _START.match(folded, at)) else at
        found = self._table.prefixes.match(folded, begin)
        if found is None or not any(map(str.isalnum, folded[found.end() :])):
            return at
        return found.end() if self._knows_topics(found) else at

    def _knows_topics(self, found: re.Match[str]) -> bool:
        for name, topic in found.groupdict().items():
            if not topic:
                continue
            words = words_of(topic)
            if name.startswith("known"):
                if not all(map(self._known.has, words)):
                    return False
            elif len(topic) > _MAX_TOPIC_CHARS or not _STATING.isdisjoint(words) or not self._knows(words):
                return False
        return True

    def _knows(self, words: Iterable[str]) -> bool:
        """Whether each of ``words`` is in the question or the documents, or names nothing."""
        return all(map(self._is_known, words))

    def _is_known(self, word: str) -> bool:
        if self._known.has(word):
            return True
        if any(map(str.isdecimal, word)) or word in _COUNTED:
            return False
        return word in self._table.words or (word in lexicon.STOP and word not in _LIMITING)

    def _names_something(self, folded: str) -> bool:
        """Whether a question has a number or a negation that is not in the request's text."""
        return any(
            (any(map(str.isdecimal, word)) or word in _COUNTED or word in lexicon.NEGATIONS)
            and not self._known.has(word)
            for word in words_of(folded)
        )


@lru_cache(maxsize=512)
def _fold(text: str) -> str:
    return text.translate(_LETTERS).lower()


def _bare(text: str) -> str:
    """``text`` in lower case, without punctuation at its ends."""
    folded = _fold(text)
    begin = _START.match(folded)
    start, end = begin.end() if begin else 0, len(folded)
    while end > start and (folded[end - 1].isspace() or folded[end - 1] in _END_MARKS):
        end -= 1
    return re.sub(r"\s+", " ", folded[start:end].rstrip("?？"))


@lru_cache(maxsize=8)
def _table(languages: Sequence[str]) -> _Table:
    data = tomllib.loads((resources.files("judges.text.languages") / "harmless.toml").read_text(encoding="utf-8"))
    tables = [data[language] for language in languages if language in data]
    numbers = iter(range(10_000))

    def every(name: str) -> str:
        return "|".join(_expand(entry, table["slots"], numbers) for table in tables for entry in table[name])

    return _Table(
        courtesies=re.compile(f"(?:{every('courtesies')})"),
        prefixes=re.compile(
            rf"(?:(?:{every('prefixes')})(?:\s*[,:]\s*|\s+)|(?:{every('courtesies')})\s*(?:[,:!;]|[–—-](?=\s))"
            r"(?!\s*(?:an?|the) [^,]{1,80},)\s*)"  # "Hey Jude, a song by the Beatles, ..."
        ),
        tags=re.compile(rf"\s*(?:,|[.!]|–|—|\()\s*(?:{every('tags')})\)?\s*[?？.!]*\s*\Z"),
        questions=re.compile(f"(?:{every('questions')})"),
        answers=re.compile(f"(?:{every('answers')})"),
        open_questions=re.compile(rf"(?:{every('open_questions')})\b"),
        closed=re.compile(
            rf"(?:\A|[.!?:,\n]\s*)(?:{'|'.join(table['closed'].replace('’', chr(39)) for table in tables)})"
        ),
        words=frozenset(word for table in tables for word in table["words"].split()) - lexicon.NEGATIONS - _WITHOUT,
    )


def _expand(entry: str, slots: dict[str, Any], numbers: Iterator[int]) -> str:
    for name, pattern in slots.items():
        entry = entry.replace(f"<{name}>", pattern)
    entry = entry.replace("’", "'")
    while "<topic>" in entry:
        entry = entry.replace("<topic>", rf"(?P<topic{next(numbers)}>[ ,][^;:.!?\n]{{0,160}}?)?", 1)
    while "<known>" in entry:
        entry = entry.replace("<known>", rf"(?P<known{next(numbers)}>[^\s,;:.!?]{{1,40}}(?: [^\s,;:.!?]{{1,40}})?)", 1)
    return entry
