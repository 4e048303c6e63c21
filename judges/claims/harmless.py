"""Recognises text that states nothing, with a closed list of phrases and conditions.

A courtesy, an announcement, a question to the user, a refusal or a label is harmless if it stands alone and names
nothing that is missing from the question and the documents. The judge reads everything that is not recognised here.
"""

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Final

from judges.claims.known_text import AND, ASKS, DENYING, END_MARKS, JOINS, START, KnownText, KnownWords, bare, fold
from judges.claims.labels import Labels, without_ordinal
from judges.claims.open_questions import asking_parts, asks_no_yes_or_no
from judges.features.words import lexicon
from judges.features.words.document_text import known_words, words_of
from judges.features.words.stemming import stem
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
    words_in,
)

_ALSO: Final = re.compile(r"\s*(?:(?:or|nor|and|oder|noch|und|ou|ni|et|o|y)\s+)?(?P<asks>(?:whether|if|ob|si)\b)?")
_SUBORDINATE: Final = re.compile(r"\s*(?:ob|wie|was|wann|welche\w*|wer|wo)\b")
"""The beginning of a German subordinate clause, which follows a comma."""
_ASKED: Final = re.compile(
    r"\b(?:whether|if|ob|si|(?P<degree>how|wie|comment|cómo)|(?P<given>what|when|where|which|who|whose|why|was|wann"
    r"|welche\w*|wer|wo|warum|quand|quel\w*|qui|où|pourquoi|cuándo|cuál\w*|quién|dónde|qué))\b"
)
"""The beginning of an indirect question. Such a question presupposes its content ("when the fee is due" presupposes a
fee), unless it asks for yes or no."""
_CLAUSE: Final = re.compile(r"[,;:–—](?=\s)|\b(?:but|however|aber|jedoch|mais|pero|sino)\b")
_EXCEPTING: Final = DENYING | {"than", "als", "besides", "sauf", "außer", "salvo"}
"""Words with which the object of a refusal states something: "anything other than ice"."""
_QUESTION: Final = re.compile(r"[?？]\s*\Z")
_FURTHER: Final = re.compile(r"[,;:.!?…()–—，；：。、]|\s-+\s")
"""Punctuation in a question after which another clause may follow."""
_LED: Final = " ,:;!.…–—-"
"""Punctuation around an introduction."""
_FOOTNOTE: Final = re.compile(r"\s*+(?:\[\^(?P<label>[\w-]{1,20})\]|[¹²³⁴-⁹]{1,2})?\s*+:?\s*+")
_PARTS: Final = re.compile(rf"(?:\A|[,:;.!?…–—-]){START.pattern}(?:(?:and|so|but|und|aber|et|y) )?")
"""The beginning of each part of a text."""
_USER: Final = frozenset(["you", "your", "du", "dein", "deine", "vous", "votre", "vos", "tu", "usted", "su"])
"""Pronouns for the user. An indirect question may ask about the user ("which plan you have")."""
_MAX_TOPIC_CHARS: Final = 160
_LEADING_MARKS: Final = ",;–—-"
_LABEL_MARKS: Final = ":："
"""Marks between an introduction or a label and a "yes" or "no"."""
_INTRODUCING: Final = frozenset(_LEADING_MARKS + _LABEL_MARKS)
_MAX_INTRODUCTION: Final = 12
"""The maximum number of words in an introduction to a "yes" or "no"."""


class HarmlessText:
    """Decides which clauses, headings and questions of one reply state nothing. ``known`` looks up the request's
    text."""

    def __init__(self, known: KnownText, languages: Sequence[str] = LANGUAGES) -> None:
        self._known = known
        self._table = harmless_rules(tuple(languages), lexicon.STOP)
        self._words = KnownWords(known, self._table)
        self._asked_words = KnownWords(known.without_documents(), self._table)
        """A refusal only names what the user asked for."""
        self._rules = claim_rules(tuple(languages))
        self._prefix = lru_cache(maxsize=64)(self._find_prefix)
        """Cached, because each sentence is read twice."""

    @cached_property
    def _labels(self) -> Labels:
        return Labels(self._words, self._table)

    def prefix(self, text: str) -> int:
        """Return the length of the introduction in ``text`` (a courtesy before a comma, "I think that", "Did you know
        that"). Return 0 if there is none, if nothing follows it, or if it names what the text is about ("Here are the
        steps for children:")."""
        folded, at = fold(text), 0
        while (end := self._prefix(folded, at)) > at:
            at = end
        return at

    def suffix(self, text: str) -> int:
        """Return the position of a question tag (", right?") at the end of ``text``, or the length of ``text`` if there
        is none."""
        if not text.rstrip().endswith(("?", "？")):
            return len(text)
        found = self._table.tags.search(fold(text))
        return found.start() if found and found.start() else len(text)

    def is_courtesy(self, text: str) -> bool:
        """Return whether ``text`` as a whole is a courtesy or an announcement."""
        if self._table.placeholders.fullmatch(fold(text).strip(" \n*_.,")):
            return True
        announced = AND.sub("", bare(text))
        found = self._table.courtesies.fullmatch(announced)
        if found is None and text.rstrip().endswith(tuple(_LABEL_MARKS)):
            found = self._table.lead_ins.fullmatch(announced)
        return found is not None and self._knows_topics(found)

    def announces(self, text: str) -> bool:
        """Return whether a part of ``text``, which states nothing, announces something by its name ("Let's start with
        the refunds", but not "Let me explain")."""
        folded = fold(text)
        for begin in _PARTS.finditer(folded):
            found = self._table.announcements.match(folded, begin.end())
            if found and any(self._names(topic) for topic in found.groups() if topic):
                return True
        return False

    def names_part(self, text: str) -> bool:
        """Return whether ``text`` as a whole names only a part of the reply ("Answer:", "Next steps"). If the question
        or a document has the same words, it may name something else."""
        table, folded = self._table, without_ordinal(bare(text).rstrip(":： "))
        if found := table.courtesies.fullmatch(folded):
            return not any(self._names(topic) for topic in found.groups() if topic)
        return (table.parts | table.beginning).issuperset(words_of(folded)) and not self._known.names(folded)

    def is_numbered(self, text: str) -> bool:
        """Return whether a label begins with a number ("1. Refunds")."""
        folded = bare(text)
        return without_ordinal(folded) != folded

    def refuses(self, text: str, label: str) -> bool:
        """Return whether ``text`` is a refusal to tell what the user asked about the thing that ``label`` names."""
        named = [word for word in words_of(without_ordinal(bare(label))) if self._table.names(word)]
        if not named or not self._known.asked(named) or not (end := self.refusal(text)):
            return False
        refused = known_words([text[:end]])
        return all(word in refused or stem(word) in refused for word in named)

    def names(self, text: str) -> bool:
        """Return whether ``text``, which states nothing, has a word that is in none of the fixed phrases."""
        return any(word not in self._closed and self._known.has(word) for word in words_of(text))

    def is_in_documents(self, text: str) -> bool:
        """Return whether ``text`` has words that deny nothing, and each is in a document or a fixed phrase, or names a
        part of the reply."""
        fixed = self._closed | self._table.parts
        words = words_of(without_ordinal(bare(text)))
        if not words or not _EXCEPTING.isdisjoint(words):
            return False
        return all(word.partition("'")[0] in fixed or self._known.in_documents(word) for word in words)

    @cached_property
    def _closed(self) -> frozenset[str]:
        table = self._table
        phrases = words_in(table.courtesies.pattern) | words_in(self._rules.refusals.pattern)
        return (
            frozenset(map(str.casefold, phrases))
            | table.connectors
            | table.determiners
            | table.beginning
            | table.courteous
            | lexicon.STOP
        )

    def _names(self, topic: str) -> bool:
        """Return whether a topic has a word that may name something in the question or a document."""
        table = self._table
        unnamed = table.connectors | table.determiners | table.beginning
        return any(
            word not in unnamed and (word not in table.courteous or self._known.has(word)) for word in words_of(topic)
        )

    def is_question(self, text: str) -> bool:
        """Return whether ``text`` repeats the user's question, or is a question to the user in one clause of fixed
        words. Words of the user's question may follow "about"."""
        if not _QUESTION.search(text) or has_symbol(text):
            return False
        if self._known.asks_question(text):
            return True
        folded, table = bare(text), self._table
        words = words_of(folded)
        is_open = table.open_questions.match(folded) is not None and not _USER.isdisjoint(words)
        if not (is_open or table.questions.match(folded)) or _FURTHER.search(folded):
            return False
        topic = next((place for place, word in enumerate(words) if word in table.about), len(words))
        return all(map(self._is_asking, words[:topic])) and self._is_asked_topic(words[topic + 1 :])

    def _is_asking(self, word: str) -> bool:
        """Return whether ``word`` may occur in any question to the user."""
        return word in self._table.asking or (word in lexicon.STOP and self._words.is_function_word(word))

    def _is_asked_topic(self, words: Sequence[str]) -> bool:
        """Return whether ``words`` name something that the user asked about."""
        is_named = ASKS.isdisjoint(words) and self._words.counts_nothing(words) and self._is_named(words, strict=True)
        return is_named and all(self._is_asking(word) or self._asked_words.is_known(word) for word in words)

    def quotes(self, text: str) -> bool:
        """Return whether a document or a name contains ``text`` (such as an address) verbatim."""
        return self._known.quotes(text.strip(f"{END_MARKS}([{{<>}}]\"' "))

    def is_unknown_address(self, text: str) -> bool:
        """Return whether ``text``, which has no words, is an address that isn't in any document."""
        return any(map(str.isalnum, text)) and not self.quotes(text)

    def is_footnote(self, text: str) -> bool:
        """Return whether ``text`` is a footnote that consists of a document's name: "[^1]: faq.pdf"."""
        mark = _FOOTNOTE.match(text)
        return (
            mark is not None
            and self._known.is_name(text[mark.end() :].strip(" .`*_"))
            and self._words.knows(words_of(mark["label"] or ""))
        )

    def has_verb(self, text: str) -> bool:
        """Return whether ``text`` contains a verb that turns a heading or a comment into a statement."""
        return not STATING.isdisjoint(words_of(text))

    def refusal(self, text: str) -> int:
        """Return the length of the refusal at the start of ``text``. Return 0 if there is none, or if it names
        something that is missing from the question."""
        folded = fold(text)
        filler = self._rules.fillers.match(folded)
        found = self._rules.refusals.match(folded, filler.end()) if filler else None
        found = found or self._rules.refusals.match(folded)
        if found is None:
            return 0
        for group in filter(None, found.groups()):
            words = words_of(PASSIVE.sub("", group))
            if not self._asked_words.knows(words) or not self._is_named(words):
                return 0
        phrase = folded[: found.end()].rstrip(" ,")
        if APOLOGY.search(phrase) and self._rules.refusals.match(folded, found.end()):
            return found.end()
        end = self._end_of_refusal(folded, found.end())
        return end if self._is_refused(phrase, folded[found.end() : end].rstrip(f" {END_MARKS}?;—–-")) else 0

    def _end_of_refusal(self, folded: str, at: int) -> int:
        """Return the position at which a refusal's clause ends: at a comma, unless another object of the refusal
        follows."""
        for mark in _CLAUSE.finditer(folded, at):
            if _SUBORDINATE.match(folded, mark.end()):
                continue
            also = _ALSO.match(folded, mark.end())
            if also is None or also.end() == mark.end() or not also[0].strip():
                return mark.end()
            after = folded[also.end() :].rstrip(END_MARKS + " ")
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
        """Return whether a refusal's ``words`` only name things, and neither state something nor give orders."""
        table = self._table
        commands = len(words) > 1 and words[0] in table.imperatives and words[1] not in table.heads
        describes = strict and bool(words) and words[0] in table.predicates
        return not (commands or describes or table.is_clause(words, strict=strict))

    def _is_object(self, text: str) -> bool:
        """Return whether ``text`` is a noun phrase or an indirect question that only names what the reply doesn't
        know."""
        if has_symbol(text):
            return False
        asked = _ASKED.search(text)
        named = words_of(text[: asked.start()] if asked else text)
        if not self._is_named(named, strict=True) or THAT_CLAUSE.match(text):
            return False
        words = words_of(text)
        if not self._asked_words.knows(words) or not _EXCEPTING.isdisjoint(words):
            return False
        if asked is None:
            return True
        return not JOINS.search(text[asked.end() :]) and self._is_open(asked, text[asked.end() :])

    def _is_open(self, asked: re.Match[str], clause: str) -> bool:
        """Return whether an indirect question presupposes nothing ("whether the fee is due") or repeats what the user
        asked. It may repeat it about another subject: "when the fee is due" if the user asked when a bill
        is due."""
        if not (asked["given"] or asked["degree"]):
            return True
        words, table = words_of(clause), self._table
        named = next((place for place, word in enumerate(words) if table.names(word)), len(words))
        asked_openly, about_user = self._known.asked([asked[0]]), not _USER.isdisjoint(words)
        return all(
            (asked_openly and self._known.asked([word]))
            or not (table.names(word) or word in table.predicates or word in table.verbs or word in DENYING)
            or (about_user and word in table.asking)
            for word in words[named + 1 :]
        )

    def is_label(self, text: str, *, numbering: bool = False) -> bool:
        """Return whether ``text`` (a heading, table header or lead-in) contains only function words and words from the
        question or the documents. With ``numbering``, a number before the text is ignored, because it only continues a
        numbered list."""
        folded = bare(text).rstrip(":： ")
        if numbering:
            folded = without_ordinal(folded)
        if self._table.courtesies.fullmatch(folded) and self.is_courtesy(folded):
            return True
        return self._labels.is_label(text, folded)

    def heads_side_by_side(self, cells: Sequence[str]) -> bool:
        """Return whether the header of a table puts two names next to each other."""
        return self._labels.heads_side_by_side(cells)

    def is_name(self, text: str) -> bool:
        """Return whether ``text`` is the whole name of a document."""
        return self._known.is_name(text.strip(f"{END_MARKS}([{{<>}}]\"' "))

    def knows_numbers(self, text: str) -> bool:
        """Return whether the question or the documents contain every number in ``text``."""
        return all(self._known.has(word) for word in words_of(text) if any(map(str.isdecimal, word)))

    def answers(self, text: str, asked: str | None, *, stated: bool = False, first: bool = False) -> bool:
        """Return whether ``text``, which looks like a "yes" or "no", answers ``asked`` (the preceding text, or None if
        it isn't known). Texts that may also be a courtesy, such as "Of course!", count as answers unless ``asked`` is
        known to be an open question or no question at all. A wish ("Enjoy!") is not an answer if a claim has been
        ``stated`` since."""
        core, table = self.answer_in(text, first=first), self._table
        if not table.courtesies.fullmatch(core):
            return True
        if stated and table.wishes.fullmatch(core):
            return False
        pattern = table.manner if table.judgements.fullmatch(core) else table.open
        return asked is None or not asks_no_yes_or_no(asked, pattern, table, self.is_courtesy)

    def asks_nothing(self, text: str) -> bool:
        """Return whether ``text`` is known to ask nothing ("Thanks!"), so that no "yes" can answer it."""
        return not asking_parts(text, self._table, self.is_courtesy)

    def answer_in(self, text: str, *, first: bool = False) -> str:
        """Return the part of ``text`` that looks like a "yes" or "no", or "". That part may follow an introduction
        ("Oh, sure!", "Based on the documents, no."), or be a courtesy at the beginning ("Sure, let me explain."). If
        ``text`` is the ``first`` sentence of a reply, the introduction may also be a label ("Answer: yes"). In later
        sentences, a label isn't an introduction, because it states what the "yes" is about ("Refundable: yes")."""
        folded, at, led = fold(text), 0, ""
        while (end := self._prefix(folded, at)) > at:
            piece = folded[at:end].strip(_LED)
            led, at = led or (piece if self._table.answers.fullmatch(piece) else ""), end
        rest = text[at:]
        core = AND.sub("", bare(rest[: self.suffix(rest)]))
        if self._table.answers.fullmatch(core):
            return core
        return led if led or _INTRODUCING.isdisjoint(core) else self._introduced_answer(core, first=first)

    def _introduced_answer(self, text: str, *, first: bool) -> str:
        """Return the "yes" or "no" at the end of ``text`` if only an introduction without a verb precedes it, or ""."""
        end = max(text.rfind(mark) for mark in _LEADING_MARKS + _LABEL_MARKS * first) + 1
        answer = bare(text[end:].strip())
        if not self._table.answers.fullmatch(answer):
            return ""
        words = words_of(text[:end])
        is_introduction = 0 < len(words) <= _MAX_INTRODUCTION and not self._table.is_clause(words, strict=True)
        return answer if is_introduction else ""

    def _find_prefix(self, folded: str, at: int) -> int:
        begin = start.end() if (start := START.match(folded, at)) else at
        found = self._table.prefixes.match(folded, begin)
        if found is None or not any(map(str.isalnum, folded[found.end() :])):
            return at
        return found.end() if self._knows_topics(found) and not self._has_topic(found) else at

    def _has_topic(self, found: re.Match[str]) -> bool:
        """Return whether an introduction names something. The user's name doesn't count, unless a document has it."""
        for name, topic in found.groupdict().items():
            if topic and (
                any(map(self._known.in_documents, words_of(topic))) if name.startswith("known") else self._names(topic)
            ):
                return True
        return False

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
        if len(topic) > _MAX_TOPIC_CHARS or JOINS.search(topic):
            return False
        words = words_of(self._words.without_identifiers(topic))
        if not words:
            return True
        if (asked := _ASKED.search(topic)) and not self._is_open(asked, topic[asked.end() :]):
            return False
        known = kind == "noun" or words[0] in self._table.connectors
        if not (known or (kind == "object" and words[0] in self._table.determiners)):
            return False
        is_clause = kind == "noun" and self._table.is_clause(words, strict=True)
        states = self._words.states(words) if kind == "noun" else not STATING.isdisjoint(words)
        return not (states or is_clause) and self._words.names_nothing_new(words)
