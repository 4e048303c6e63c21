"""Recognises text that states nothing, using a closed list with conditions.

A courtesy, an announcement, a question to the user, a refusal or a label is harmless if it stands alone and names
nothing that is missing from the question and the documents. The judge reads everything that is not recognised here.
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
from judges.text.languages.rules import LANGUAGES, claim_rules, words_in

_END_MARKS: Final = '.!…。！,:：)]"”’*_'
_START: Final = re.compile(r"[\s(\[\"“‘*_¡¿.…!–—-]*")
_QUESTION: Final = re.compile(r"[?？]\s*\Z")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?？])\s+|\n")
_SUBORDINATE: Final = re.compile(
    r"\s*(?:whether|if|how|what|when|which|who|whose|where|why|or|nor|and (?:i|we) |ob|wie|was|wann"
    r"|welche\w*|wer|wo|oder|noch|si|comment|quand|quel\w*|qui|où|ou|cómo|cuándo|cuál\w*|quién|dónde|o|ni)\b"
)
_CLAUSE: Final = re.compile(r"[,;:–—](?=\s)|\b(?:but|however|aber|jedoch|mais|pero|sino)\b")
_NUMBERING: Final = re.compile(
    r"\A(?:\d{1,2}(?:\.\d{1,2}){0,3}[.)]|[ivx]{1,5}[.)]|[a-z][.)])\s+(?=(?P<next>[^\W\d_]+))"
)
_UNITS: Final = frozenset({*vocabulary.UNITS, *vocabulary.PERIODS, *vocabulary.CURRENCIES, *vocabulary.SCALES}) | {
    *vocabulary.PERCENT,
    *vocabulary.POINTS,
    *vocabulary.HOW_OFTEN,
}
_THAT: Final = re.compile(r"(?<!\w)(?:that|dass|que)\s+(?!you\b|i\b|we\b|sie\b|ich\b|wir\b|vous\b|je\b|nous\b)")
"""Words in a question that introduce text stated as a fact."""
_JOINS: Final = re.compile(
    r"[(\[–—]|(?<!\w)(?:and|but|then|so|because|und|aber|dann|denn|sondern|et|mais|puis|donc|car|y|pero|luego|porque"
    r"|sino)(?=\s+\S+\s+\S)"
)
"""Text that may join another statement to a topic: a bracket, a dash, or a conjunction before more than one word."""
_ASKING_LISTED = (
    "what when where which who why how was wann wo welche welcher wer warum wie quand où quoi comment pourquoi qué "
    "cuándo dónde cuál cómo"
)
_ASKS: Final = frozenset(_ASKING_LISTED.split())
"""Question words. A label that begins with a question word is a question, so its verb states nothing."""
_IDENTIFIED: Final = re.compile(
    r"(?<!\w)(?:type|version|step|article|section|paragraph|phase|part|stage|level|chapter|figure|table|page|typ|schritt"
    r"|artikel|abschnitt|kapitel|teil|seite|étape|chapitre|section|partie|tipo|versión|paso|artículo|sección)"
    r" \d{1,4}(?:\.\d{1,3}){0,3}(?![\w.,%]?\w)"
)
"""A number that identifies something rather than counting it."""
_LEAD: Final = re.compile(
    r" (?:is|are|was|were|ist|sind|war|waren|lautet|lauten|est|sont|es|son)\Z|\A(?:[^\W\d_]+) (?=.* like this\Z)"
)
"""Matches the verb of a lead-in: the last word ("The steps are") or, if the lead-in ends with "like this", the first
word ("Run it like this")."""
_FOOTNOTE: Final = re.compile(r"\s*+(?:\[\^(?P<label>[\w-]{1,20})\]|[¹²³⁴-⁹]{1,2})?\s*+:?\s*+")
_BREAK: Final = re.compile(r"[,;:(–—]")
_AND: Final = re.compile(r"\A(?:and|so|but|und|aber|et|y) ")
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
"""Verbs that turn a heading or topic into a statement."""
_COUNTED: Final = (
    frozenset(vocabulary.NUMBER_WORDS) | frozenset(vocabulary.SCALES) | vocabulary.HOW_OFTEN - vocabulary.ONE
)
_WITHOUT: Final = frozenset(["without", "ohne", "sans", "sin"])
_DENYING: Final = lexicon.NEGATIONS | _WITHOUT
_COUNTING: Final = _DENYING | _COUNTED | {"every", "twice", "half", "double", "always", "only", "except"}
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
    assents: re.Pattern[str]
    wishes: re.Pattern[str]
    open_questions: re.Pattern[str]
    closed: re.Pattern[str]
    words: frozenset[str]
    asking: frozenset[str]
    courteous: frozenset[str]
    connectors: frozenset[str]
    determiners: frozenset[str]
    imperatives: frozenset[str]
    heads: frozenset[str]
    placeholders: re.Pattern[str]


class HarmlessText:
    """Decides which clauses, headings and questions of one reply state nothing. ``known`` looks up the request's
    text."""

    def __init__(self, known: KnownText, languages: Sequence[str] = LANGUAGES) -> None:
        self._known = known
        self._table = _table(tuple(languages))
        self._rules = claim_rules(tuple(languages))

    def prefix(self, text: str) -> int:
        """Return the length of the introduction in ``text``: a courtesy before a comma, "I think that", "Did you know
        that". Return 0 if there is none or nothing follows it."""
        folded, at = _fold(text), 0
        while (end := self._prefix(folded, at)) > at:
            at = end
        return at

    def suffix(self, text: str) -> int:
        """Return the position of a question tag (", right?") at the end of ``text``, or the length of ``text`` if there
        is none."""
        found = self._table.tags.search(_fold(text))
        return found.start() if found and found.start() else len(text)

    def is_courtesy(self, text: str) -> bool:
        """Return whether ``text`` as a whole is a courtesy or an announcement."""
        if self._table.placeholders.fullmatch(_fold(text).strip(" \n*_.,")):
            return True
        found = self._table.courtesies.fullmatch(_AND.sub("", _bare(text)))
        return found is not None and self._knows_topics(found)

    def is_question(self, text: str) -> bool:
        """Return whether ``text`` is a question to the user that says nothing new or repeats the user's own
        question."""
        if not _QUESTION.search(text):
            return False
        if self._known.asks(text):
            return True
        folded = _bare(text)
        if opening := self._table.questions.match(folded):
            asks = self._table.asking
            return not _THAT.search(folded, opening.end()) and all(
                word in asks or self._is_known(word) for word in words_of(folded)
            )
        return self._table.open_questions.match(folded) is not None and self._knows(words_of(folded))

    def quotes(self, text: str) -> bool:
        """Return whether a document or a name contains ``text`` (such as an address) literally."""
        return self._known.quotes(text.strip(f"{_END_MARKS}([{{<>}}]\"' "))

    def is_footnote(self, text: str) -> bool:
        """Return whether ``text`` is a footnote whose text is the name of a document: "[^1]: faq.pdf"."""
        mark = _FOOTNOTE.match(text)
        return (
            mark is not None
            and self._known.is_name(text[mark.end() :].strip(" .`*_"))
            and self._knows(words_of(mark["label"] or ""))
        )

    def has_verb(self, text: str) -> bool:
        """Return whether ``text`` contains one of the verbs that make headings and comments statements."""
        return not _STATING.isdisjoint(words_of(text))

    def refusal(self, text: str) -> int:
        """Return the length of the refusal at the start of ``text``, or 0 if there is none or it names something that
        is missing from the question and the documents."""
        folded = _fold(text)
        filler = self._rules.fillers.match(folded)
        found = self._rules.refusals.match(folded, filler.end()) if filler else None
        found = found or self._rules.refusals.match(folded)
        if found is None:
            return 0
        end = len(folded)
        for mark in _CLAUSE.finditer(folded, found.end()):
            if not _SUBORDINATE.match(folded, mark.end()):
                end = mark.end()
                break
        named = [*filter(None, found.groups()), folded[found.end() : end]]
        return end if all(self._knows(words_of(text)) for text in named) else 0

    def is_label(self, text: str, *, numbers: bool = False) -> bool:
        """Return whether ``text`` (a heading, table header or lead-in) contains only function words and words from the
        question or the documents. With ``numbers``, their numbers are allowed too, as in the name of a source.
        """
        folded = _without_ordinal(_bare(text).rstrip(":： "))
        if self._table.courtesies.fullmatch(folded) and self.is_courtesy(folded):
            return True
        bare = self._without_identifiers(_LEAD.sub("", _AND.sub("", folded)))
        words = words_of(bare)
        if len(words) > _MAX_LABEL_WORDS or any(self._states(words_of(part)) for part in _BREAK.split(bare)):
            return False
        return (numbers or not any(word[0].isdigit() or word in _COUNTED for word in words)) and self._knows(words)

    def _states(self, words: Sequence[str]) -> bool:
        """Return whether a label with ``words`` states a fact or gives an instruction."""
        table = self._table
        if not words or words[0] in _ASKS:
            return False
        if len(words) > 1 and words[0] in table.imperatives and words[1] not in table.heads:
            return True
        return not _STATING.isdisjoint(words) or not _DENYING.isdisjoint(words)

    def _without_identifiers(self, folded: str) -> str:
        """Return ``folded`` without numbers that identify a thing named in the question or a document."""

        def known(found: re.Match[str]) -> str:
            return found[0].split()[0] if self._known.names(found[0]) else found[0]

        return _IDENTIFIED.sub(known, folded)

    def introduces(self, text: str) -> bool:
        """Return whether ``text``, the introduction to a statement, names nothing that is missing from the question and
        the documents."""
        return self._knows(words_of(text))

    def knows_numbers(self, text: str) -> bool:
        """Return whether the question or the documents contain every number in ``text``."""
        return all(self._known.has(word) for word in words_of(text) if any(map(str.isdecimal, word)))

    def is_answer(self, text: str) -> bool:
        """Return whether ``text`` looks like a "yes" or "no", with or without an introduction ("Oh, sure!")."""
        return self._table.answers.fullmatch(self._core(text)) is not None

    def answers(self, text: str, question: str, *, stated: bool = False) -> bool:
        """Return whether ``text``, which looks like a "yes" or "no", answers the question. If it could also be a
        courtesy ("Of course!"), it counts as an answer only after a yes-or-no question; a wish ("Enjoy!") only if
        nothing has been ``stated`` since the question.
        """
        core, table = self._core(text), self._table
        if not table.courtesies.fullmatch(core):
            return True
        return self._is_closed(question) and not (stated and table.wishes.fullmatch(core))

    def _core(self, text: str) -> str:
        """Return ``text`` without an introduction or a question tag, as ``_bare`` does."""
        rest = text[self.prefix(text) :]
        return _AND.sub("", _bare(rest[: self.suffix(rest)]))

    def _is_closed(self, question: str) -> bool:
        """Return whether ``question`` can be answered with yes or no. Users leave out question marks."""
        folded, table = _fold(question), self._table
        last = _SENTENCE_END.split(folded.rstrip(" \n.!?？"))[-1]
        if not _QUESTION.search(question):
            return table.closed.match(last) is not None
        asks_more = any(word in _ASKS or table.open_questions.fullmatch(word) for word in words_of(last))
        return not asks_more or table.closed.search(folded) is not None

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
            if name.startswith("known"):
                if not all(map(self._known.has, words_of(topic))):
                    return False
            elif not self._is_topic(topic.strip(), kind=name.rstrip("0123456789")):
                return False
        return True

    def _is_topic(self, topic: str, *, kind: str) -> bool:
        """Return whether ``topic`` only names the subject of a courtesy or an announcement."""
        if len(topic) > _MAX_TOPIC_CHARS or _JOINS.search(topic):
            return False
        words = words_of(self._without_identifiers(topic))
        if not words:
            return True
        known = kind == "noun" or words[0] in self._table.connectors
        if not (known or (kind == "object" and words[0] in self._table.determiners)):
            return False
        states = self._states(words) if kind == "noun" else not _STATING.isdisjoint(words)
        return not states and self._names_nothing_new(words)

    def _names_nothing_new(self, words: Iterable[str]) -> bool:
        """Return whether every word of a topic is known or a courtesy, and none is a number or a negation."""
        table = self._table
        return not any(any(map(str.isdecimal, word)) or word in _COUNTING for word in words) and all(
            word in table.courteous or self._is_known(word) for word in words
        )

    def _knows(self, words: Iterable[str]) -> bool:
        """Return whether each of ``words`` is in the question or the documents, or is a function word."""
        return all(map(self._is_known, words))

    def _is_known(self, word: str) -> bool:
        if self._known.has(word):
            return True
        if any(map(str.isdecimal, word)) or word in _COUNTED:
            return False
        return word in self._table.words or (word in lexicon.STOP and word not in _LIMITING)


@lru_cache(maxsize=512)
def _fold(text: str) -> str:
    return text.translate(_LETTERS).lower()


@lru_cache(maxsize=512)
def _bare(text: str) -> str:
    """Return ``text`` in lower case, without punctuation at either end."""
    folded = _fold(text)
    begin = _START.match(folded)
    start, end = begin.end() if begin else 0, len(folded)
    while end > start and (folded[end - 1].isspace() or folded[end - 1] in _END_MARKS):
        end -= 1
    return re.sub(r"\s+", " ", folded[start:end].rstrip("?？"))


def _without_ordinal(folded: str) -> str:
    """Return ``folded`` without the number of a heading ("1. Refunds"). A number before a unit counts something."""
    found = _NUMBERING.match(folded)
    return folded[found.end() :] if found and found["next"] not in _UNITS else folded


@lru_cache(maxsize=8)
def _table(languages: Sequence[str]) -> _Table:
    data = tomllib.loads((resources.files("judges.text.languages") / "harmless.toml").read_text(encoding="utf-8"))
    others = () if len(languages) < len(LANGUAGES) else (language for language in data if language not in languages)
    tables = [data[language] for language in (*languages, *others) if language in data]
    numbers = iter(range(10_000))

    def every(name: str) -> str:
        return "|".join(_expand(entry, table["slots"], numbers) for table in tables for entry in table[name])

    def listed(name: str) -> frozenset[str]:
        return frozenset(word for table in tables for word in table.get(name, "").split())

    courtesies = f"{every('courtesies')}|{every('assents')}|{every('wishes')}"
    return _Table(
        courtesies=re.compile(f"(?:{courtesies})"),
        prefixes=re.compile(
            rf"(?:(?:{every('prefixes')})(?:\s*[,:]\s*|\s+)|(?:{courtesies})\s*(?:[,:!;]|[–—-](?=\s))"
            r"(?!\s*(?:an?|the) [^,]{1,80},)\s*)"  # "Hey Jude, a song by the Beatles, ..."
        ),
        tags=re.compile(rf"\s*,\s*(?:{every('tags')})\s*[?？]\s*\Z"),
        questions=re.compile(f"(?:{every('questions')})"),
        answers=re.compile(f"(?:{every('answers')}|{every('assents')}|{every('wishes')})"),
        assents=re.compile(f"(?:{every('assents')})"),
        wishes=re.compile(f"(?:{every('wishes')})"),
        open_questions=re.compile(rf"(?:{every('open_questions')})\b"),
        closed=re.compile(
            rf"(?:\A|[.!?:,\n]\s*)(?:{'|'.join(table['closed'].replace('’', chr(39)) for table in tables)})"
        ),
        words=frozenset(word for table in tables for word in table["words"].split()) - lexicon.NEGATIONS - _WITHOUT,
        asking=words_in(every("questions")) | listed("asking"),
        courteous=listed("courteous"),
        connectors=listed("connectors"),
        determiners=listed("determiners"),
        imperatives=listed("imperatives"),
        heads=listed("heads"),
        placeholders=re.compile(
            "|".join(table["slots"]["placeholder"] for table in tables if "placeholder" in table["slots"]) or r"(?!)"
        ),
    )


def _expand(entry: str, slots: dict[str, Any], numbers: Iterator[int]) -> str:
    for name, pattern in slots.items():
        entry = entry.replace(f"<{name}>", pattern)
    entry = entry.replace("’", "'")
    for kind in ("topic", "object", "noun"):
        while f"<{kind}>" in entry:
            entry = entry.replace(f"<{kind}>", rf"(?P<{kind}{next(numbers)}>(?: |(?<= ))[^,;:.!?\n]{{0,160}}?)?", 1)
    while "<known>" in entry:
        entry = entry.replace("<known>", rf"(?P<known{next(numbers)}>[^\s,;:.!?]{{1,40}}(?: [^\s,;:.!?]{{1,40}})?)", 1)
    return entry
