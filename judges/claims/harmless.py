"""Recognises text that states nothing, using a closed list with conditions.

A courtesy, an announcement, a question to the user, a refusal or a label is harmless if it stands alone and names
nothing that is missing from the question and the documents. The judge reads everything that is not recognised here.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from judges.claims.known_text import KnownText
from judges.claims.open_questions import asks_no_yes_or_no
from judges.features.numbers import vocabulary
from judges.features.words import lexicon
from judges.features.words.document_text import words_of
from judges.text.fragments import has_symbol
from judges.text.languages.rules import (
    APOLOGY,
    HAVING,
    HELD,
    KNOWING,
    KNOWN_BY,
    LANGUAGES,
    PASSIVE,
    REFUSED,
    STATING,
    THAT_CLAUSE,
    UNABLE,
    claim_rules,
    harmless_rules,
)

_END_MARKS: Final = '.!…。！,:：)]"”’*_'
_START: Final = re.compile(r"[\s(\[\"“‘*_¡¿.…!–—-]*")
_QUESTION: Final = re.compile(r"[?？]\s*\Z")
_LED: Final = " ,:;!.…–—-"
"""Punctuation around an introduction."""
_ALSO: Final = re.compile(r"\s*(?:(?:or|nor|and|oder|noch|und|ou|ni|et|o|y)\s+)?(?P<asks>(?:whether|if|ob|si)\b)?")
_SUBORDINATE: Final = re.compile(r"\s*(?:ob|wie|was|wann|welche\w*|wer|wo)\b")
"""German subordinate clauses, which follow a comma."""
_ASKED: Final = re.compile(
    r"\b(?:(?P<open>whether|if|what|when|where|which|who|whose|ob|was|wann|welche\w*|wer|wo|si|quand|quel\w*|qui|où"
    r"|cuándo|cuál\w*|quién|dónde)|(?P<given>how|why|wie|warum|comment|pourquoi|cómo))\b"
)
"""The beginning of an indirect question. One that asks for the manner or reason takes the rest for granted."""
_DEGREE: Final = re.compile(
    r" (?:to|much|many|long|often|far|old|big|large|soon|viele?|lange|oft|hoch|weit|groß|man)\b"
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
    r"[(\[–—&]|(?<!\w)(?:and|but|then|so|because|und|aber|dann|denn|sondern|et|mais|puis|donc|car|y|pero|luego|porque"
    r"|sino)(?=\s+\S+\s+\S)"
)
"""Text that may join another statement to a topic: a bracket, a dash, or a conjunction before more than one word."""
_ASKING_LISTED = (
    "what when where which who why how was wann wo welche welcher wer warum wie quand où quoi comment pourquoi qué "
    "cuándo dónde cuál cómo what's who's"
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
_COLON: Final = re.compile(r"[:：]\s*\Z")
_BREAK: Final = re.compile(r"[,;:(–—]")
_OPEN: Final = re.compile(
    r" (?:with|by|for|to|from|in|on|at|of|as|if|when|includes?|covers?|needs?|says?|states?|the following|as follows"
    r"|(?:these|this|the following) (?P<thing>\w+))\Z"
)
"""The end of a lead-in that only the list below it completes."""
_GIVEN: Final = frozenset(["how", "why", "wie", "warum", "comment", "pourquoi", "cómo"])
"""Question words that take the rest of the question for granted."""
_WHY: Final = frozenset(["why", "warum", "pourquoi"])
_AND: Final = re.compile(r"\A(?:and|so|but|und|aber|et|y) ")
_MAX_LABEL_WORDS: Final = 16
_MAX_TOPIC_CHARS: Final = 160
_LETTERS: Final = str.maketrans("’ʼİ", "''I")

_COUNTED: Final = (
    frozenset(vocabulary.NUMBER_WORDS) | frozenset(vocabulary.SCALES) | vocabulary.HOW_OFTEN - vocabulary.ONE
)
_WITHOUT: Final = frozenset(["without", "ohne", "sans", "sin"])
_DENYING: Final = lexicon.NEGATIONS | _WITHOUT
_EXCEPTING: Final = _DENYING | {"than", "als", "besides", "sauf", "außer", "salvo"}
"""Words that make the object of a refusal a statement: "anything other than ice"."""
_COUNTING: Final = _DENYING | _COUNTED | {"every", "twice", "half", "double", "always", "only", "except"}
_LIMITING_LISTED = "minimum maximum least without except only twice double half free never always all none every"
_LIMITING: Final = (
    lexicon.NEGATIONS | vocabulary.MORE_THAN | vocabulary.LESS_THAN | vocabulary.AT_MOST | vocabulary.CHANGED
).union(_LIMITING_LISTED.split())


class HarmlessText:
    """Decides which clauses, headings and questions of one reply state nothing. ``known`` looks up the request's
    text."""

    def __init__(self, known: KnownText, languages: Sequence[str] = LANGUAGES) -> None:
        self._known = known
        self._table = harmless_rules(tuple(languages), lexicon.STOP)
        self._rules = claim_rules(tuple(languages))
        self._read: tuple[str, int] = "", 0
        """The text that ``prefix`` read last, and the result: each sentence is read twice."""

    def prefix(self, text: str) -> int:
        """Return the length of the introduction in ``text``: a courtesy before a comma, "I think that", "Did you know
        that". Return 0 if there is none or nothing follows it."""
        read, at = self._read
        if read == text:
            return at
        folded, at = _fold(text), 0
        while (end := self._prefix(folded, at)) > at:
            at = end
        self._read = text, at
        return at

    def suffix(self, text: str) -> int:
        """Return the position of a question tag (", right?") at the end of ``text``, or the length of ``text`` if there
        is none."""
        if not text.rstrip().endswith(("?", "？")):
            return len(text)
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
        if not _QUESTION.search(text) or has_symbol(text):
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
        return not STATING.isdisjoint(words_of(text))

    def refusal(self, text: str) -> int:
        """Return the length of the refusal at the start of ``text``, or 0 if there is none or it names something that
        is missing from the question and the documents."""
        folded = _fold(text)
        filler = self._rules.fillers.match(folded)
        found = self._rules.refusals.match(folded, filler.end()) if filler else None
        found = found or self._rules.refusals.match(folded)
        if found is None:
            return 0
        for group in filter(None, found.groups()):
            words = words_of(PASSIVE.sub("", group))
            if not self._knows(words) or not self._is_named(words):
                return 0
        phrase = folded[: found.end()].rstrip(" ,")
        if APOLOGY.search(phrase) and self._rules.refusals.match(folded, found.end()):
            return found.end()
        end = self._end_of_refusal(folded, found.end())
        return end if self._is_refused(phrase, folded[found.end() : end].rstrip(f" {_END_MARKS}?;—–-")) else 0

    def _end_of_refusal(self, folded: str, at: int) -> int:
        """Return where the clause of a refusal ends: at a comma, unless another object of the refusal follows it."""
        for mark in _CLAUSE.finditer(folded, at):
            if _SUBORDINATE.match(folded, mark.end()):
                continue
            also = _ALSO.match(folded, mark.end())
            if also is None or also.end() == mark.end() or not also[0].strip():
                return mark.end()
            after = folded[also.end() :].rstrip(_END_MARKS + " ")
            if also["asks"] is None and (_CLAUSE.search(after) or not self._is_object(f" {after}")):
                return mark.end()
        return len(folded)

    def _is_refused(self, phrase: str, rest: str) -> bool:
        """Return whether ``rest`` only completes the refusal that begins with ``phrase``."""
        if has_symbol(rest):
            return False
        if not any(map(str.isalnum, rest)):
            return True
        if APOLOGY.search(phrase):
            return re.match(r" (?:for|about|für|wegen|pour|por)\b", rest) is not None and self._is_object(rest)
        if UNABLE.search(phrase):
            refused = REFUSED.match(rest) or REFUSED.search(f" {rest.split()[-1]}")
            if refused is None:
                return False
            rest = rest[refused.end() :] if REFUSED.match(rest) else rest.rpartition(" ")[0]
        if (HAVING.search(phrase) and not HELD.match(rest)) or (KNOWING.search(phrase) and not KNOWN_BY.match(rest)):
            return False
        return self._is_object(re.sub(r"\A (?:pas|rien|aucune?|nada)\b", "", rest))

    def _is_named(self, words: Sequence[str], *, strict: bool = False) -> bool:
        """Return whether a refusal's ``words`` name things instead of stating something or giving orders."""
        table = self._table
        commands = len(words) > 1 and words[0] in table.imperatives and words[1] not in table.heads
        describes = strict and bool(words) and words[0] in table.predicates
        return not (commands or describes or table.is_clause(words, strict=strict))

    def _is_object(self, text: str) -> bool:
        """Return whether ``text`` names things that a reply doesn't know, as a noun phrase or an indirect question."""
        if has_symbol(text):
            return False
        asked = _ASKED.search(text)
        named = words_of(text[: asked.start()] if asked else text)
        if not self._is_named(named, strict=True) or THAT_CLAUSE.match(text):
            return False
        words = words_of(text)
        if not self._knows(words) or not _EXCEPTING.isdisjoint(words):
            return False
        if asked is None:
            return True
        clause = text[asked.end() :]
        return not _JOINS.search(clause) and (
            asked["given"] is None or _DEGREE.match(clause) is not None or self._known.asked(words_of(clause))
        )

    def is_label(self, text: str, *, numbers: bool = False, numbering: bool = False) -> bool:
        """Return whether ``text`` (a heading, table header or lead-in) contains only function words and words from the
        question or the documents. With ``numbers``, their numbers are allowed too, as in the name of a source.
        ``numbering`` says that the number before the text continues the numbers above it.
        """
        folded = _bare(text).rstrip(":： ")
        if numbering:
            folded = _without_ordinal(folded)
        if self._table.courtesies.fullmatch(folded) and self.is_courtesy(folded):
            return True
        if has_symbol(text):
            return False
        bare = self._without_identifiers(_LEAD.sub("", _AND.sub("", folded)))
        words = words_of(bare)
        if len(words) > _MAX_LABEL_WORDS or self._tells(bare, is_lead_in=_COLON.search(text) is not None):
            return False
        if numbers:
            return self._knows(words)
        counts = any(word[0].isdigit() or word in _COUNTED for word in words)
        return not counts and not self._equates(bare) and self._knows(words)

    def _tells(self, bare: str, *, is_lead_in: bool) -> bool:
        """Return whether a part of a label is a statement, an instruction or an answer. A lead-in is read without its
        open end, which the list below completes."""
        parts = [words_of(part) for part in _BREAK.split(bare)]
        last = parts[-1][-1:]
        if any(map(self._states, parts)) or (len(parts[-1]) > 1 and self._table.infinitives.issuperset(last)):
            return True
        if is_lead_in and (end := _OPEN.search(bare)) and (not end["thing"] or end["thing"] in self._table.words):
            parts = [words_of(part) for part in _BREAK.split(bare[: end.start()])]
        if any(map(self._is_clause, parts)):
            return True
        if parts[0][:1] and parts[0][0] in _ASKS:
            return any(part and part[0] not in _ASKS for part in parts[1:])
        return any(len(part) == 1 and self._describes(part[0]) for part in parts[1:])

    def _equates(self, bare: str) -> bool:
        """Return whether a label names something on both sides of a colon: "Medicine: water"."""
        return all(
            any(word not in self._table.words and word not in lexicon.STOP for word in words_of(side))
            for side in bare.partition(":")[::2]
        )

    def _describes(self, word: str) -> bool:
        return word in self._table.predicates or word.endswith("ed")

    def _is_clause(self, words: Sequence[str]) -> bool:
        """Return whether a part of a label is a clause. A question states only what it takes for granted."""
        table = self._table
        if not words or words[0] not in _ASKS:
            return table.is_clause(words)
        asked = [word for word in words[1:] if word not in STATING]
        inverted = words[1:2] != asked[:1]
        if len(asked) + 1 < len(words) and words[0] in _GIVEN and not _DEGREE.match(f" {words[1]}"):
            return not inverted or words[0] in _WHY
        return not inverted and not table.words.issuperset(asked) and table.is_clause(asked)

    def _states(self, words: Sequence[str]) -> bool:
        """Return whether a label with ``words`` states a fact or gives an instruction."""
        table = self._table
        if not words or words[0] in _ASKS:
            return False
        if len(words) > 1 and words[0] in table.imperatives and words[1] not in table.heads:
            return True
        return not STATING.isdisjoint(words) or not _DENYING.isdisjoint(words)

    def _without_identifiers(self, folded: str) -> str:
        """Return ``folded`` without numbers that identify a thing named in the question or a document."""

        def known(found: re.Match[str]) -> str:
            return found[0].split()[0] if self._known.names(found[0]) else found[0]

        return _IDENTIFIED.sub(known, folded)

    def introduces(self, text: str) -> bool:
        """Return whether ``text``, the introduction to a statement, names nothing that is missing from the question and
        the documents."""
        return not has_symbol(text) and self._knows(words_of(text))

    def knows_numbers(self, text: str) -> bool:
        """Return whether the question or the documents contain every number in ``text``."""
        return all(self._known.has(word) for word in words_of(text) if any(map(str.isdecimal, word)))

    def is_answer(self, text: str) -> bool:
        """Return whether ``text`` looks like a "yes" or "no", with or without an introduction ("Oh, sure!"), or begins
        with a courtesy that does ("Sure, let me explain.")."""
        return bool(self._answer_in(text))

    def answers(self, text: str, asked: str | None, *, stated: bool = False) -> bool:
        """Return whether ``text``, which looks like a "yes" or "no", answers what was ``asked``: None if that isn't
        known. If it could also be a courtesy ("Of course!"), it counts as an answer unless ``asked`` is known to ask
        for more than yes or no, or for nothing. A wish ("Enjoy!") is no answer if something has been ``stated`` since.
        """
        core, table = self._answer_in(text), self._table
        if not table.courtesies.fullmatch(core):
            return True
        if stated and table.wishes.fullmatch(core):
            return False
        pattern = table.manner if table.judgements.fullmatch(core) else table.open
        return asked is None or not asks_no_yes_or_no(asked, pattern, table, self.is_courtesy)

    def _answer_in(self, text: str) -> str:
        """Return the part of ``text`` that looks like a "yes" or "no", or ""."""
        folded, at, led = _fold(text), 0, ""
        while (end := self._prefix(folded, at)) > at:
            piece = folded[at:end].strip(_LED)
            led, at = led or (piece if self._table.answers.fullmatch(piece) else ""), end
        rest = text[at:]
        core = _AND.sub("", _bare(rest[: self.suffix(rest)]))
        return core if self._table.answers.fullmatch(core) else led

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
            if has_symbol(topic):
                return False
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
        is_clause = kind == "noun" and self._table.is_clause(words, strict=True)
        states = self._states(words) if kind == "noun" else not STATING.isdisjoint(words)
        return not (states or is_clause) and self._names_nothing_new(words)

    def _names_nothing_new(self, words: Iterable[str]) -> bool:
        """Return whether every word of a topic is known or a courtesy, and none is a number or a negation."""
        table = self._table
        return not any(any(map(str.isdecimal, word)) or word in _COUNTING for word in words) and all(
            word in table.courteous or self._is_known(word) for word in words
        )

    def _knows(self, words: Sequence[str]) -> bool:
        """Return whether each of ``words`` is in the question or the documents, or is a function word. Words that count
        or compare are function words only before something that states nothing ("more information")."""
        table = self._table
        return all(
            self._is_known(word)
            and (word not in table.quantities or self._known.has(word) or not table.uncounted.isdisjoint(after))
            for word, after in zip(words, [words[place : place + 2] for place in range(1, len(words) + 1)], strict=True)
        )

    def _is_known(self, word: str) -> bool:
        if self._known.has(word):
            return True
        if any(map(str.isdecimal, word)) or word in _COUNTED:
            return False
        return (word in self._table.words and word not in _DENYING) or (word in lexicon.STOP and word not in _LIMITING)


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
