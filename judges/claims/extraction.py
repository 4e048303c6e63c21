"""Extracts the claims of a sentence by rules, and leaves out what no document could support."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from judges.claims.claim_context import COLON, END, QUESTION, ContextFinder, count_words, fold, has_words, is_title
from judges.text.languages.rules import LANGUAGES, claim_rules
from judges.text.markdown import ROW, cells, inline, plain, verbalise_row
from judges.types import Claim, Sentence, Span

_AFTER_COLON = re.compile(r":\s+|：\s*")
_CODE = re.compile(r"\s*(`{1,3})[^`]+\1\s*\Z")
_LISTED = re.compile(r"\s*(?:\[\^?\w{1,9}\]|【\w{1,9}】):?\s+(?:\S+\.[A-Za-z][A-Za-z0-9]{1,4}|https?://\S+)\s*\Z")
"""A citation marker and its source: a line of a list of sources, or a footnote."""
_QUOTED = re.compile("""["“«„'][^"”»“]{1,300}["”»“']""")
_GREETED = re.compile(
    r"(?: (?:there|all|everyone|[A-Z][\w.-]{0,30})){0,2}[,!] +"
    r"(?!(?:an?|the) [^,]{1,80},)"  # Hey Jude, a song by the Beatles, ...
    r"(?=\w+ \w+ \w)"
)
_CLAUSES = re.compile(r"[;；]\s+")
_CONDITION = re.compile(r"\W*(?:if|wenn|falls|si)\b")
_DIGIT = re.compile(r"\d")
_CACHE_SIZE = 256
_NESTED = re.compile(r"[([{（「『“\"«„`]")
_MIN_CLAUSE_WORDS = 4
_MAX_GREETING_WORDS = 2
_MAX_SOURCE_WORDS = 8


@dataclass(frozen=True, slots=True)
class _Clause:
    """A part of a sentence that makes a claim; ``start`` and ``end`` are positions in the sentence's raw text."""

    text: str
    start: int
    end: int
    question: str = ""
    """The question that it repeats and answers."""


class HeuristicClaimExtractor:
    """Finds claims without a model. Implements ``judges.protocols.ClaimExtractor``.

    A sentence is one claim, or one for each clause if semicolons separate them. A claim's ``context`` holds what it
    cannot be understood without: the sentence that its pronoun or connective refers to, the lead-in of its list.

    Args:
        languages: codes of the phrase tables to use. Raises ValueError for a language without a table.
    """

    def __init__(self, *, languages: Sequence[str] = LANGUAGES) -> None:
        self._rules = claim_rules(tuple(languages))
        self._contexts = ContextFinder(self._rules, self._stated)
        # Cached, because each sentence is asked about again as the one before the next.
        self._clauses = lru_cache(maxsize=_CACHE_SIZE)(self._clauses_of)

    async def extract(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        """The claims of ``sentence``, empty if it makes none. ``previous`` are the sentences before it, in order."""
        if ROW.match(sentence.text):
            return _row(sentence, previous)
        above = self._contexts.above(sentence, previous)
        if self._rules.labels.match(fold(above.nearest)) and count_words(sentence.plain) <= _MAX_SOURCE_WORDS:
            return []
        claims: list[Claim] = []
        before: str | None = None
        for clause in self._clauses(sentence):
            context, question = self._contexts.context_of(
                sentence, clause.text, clause.question, previous, before, above
            )
            claims.append(
                Claim(
                    text=clause.text,
                    span=Span(sentence.span.start + clause.start, sentence.span.start + clause.end),
                    sentence_index=sentence.index,
                    context=context,
                    question=question,
                )
            )
            before = clause.text
        return claims

    def _clauses_of(self, sentence: Sentence) -> Sequence[_Clause]:
        if sentence.in_code or not sentence.complete or is_title(sentence) or _CODE.match(sentence.text):
            return ()
        if _LISTED.match(sentence.text):
            return ()
        open_ended = not END.search(sentence.plain) and "\n" not in sentence.text[len(sentence.text.rstrip()) :]
        if open_ended and self._rules.dangling.search(sentence.plain):
            return ()
        return tuple(clause for part in _parts(sentence.text) if (clause := self._claim(part)) is not None)

    def _stated(self, sentence: Sentence) -> str:
        """All claims of ``sentence`` as one text."""
        return "" if ROW.match(sentence.text) else " ".join(clause.text for clause in self._clauses(sentence))

    def _claim(self, part: _Clause) -> _Clause | None:
        """``part`` without its introduction; None if it makes no claim."""
        rules, rest = self._rules, part.text
        while rest and has_words(rest) and not COLON.search(rest) and not QUESTION.search(rest):
            question, text = self._without_introduction(rest)
            folded = fold(text)
            filler = rules.fillers.match(folded)
            bare = folded[filler.end() :] if filler else folded
            if rules.refusals.match(bare) or rules.refusals.match(folded):
                rest = _after(rules.contrasts, rest)  # "The documents do not say whether ..., but admission is 9 euros"
            elif rules.hedges.match(bare) or self._is_phrase(folded):
                return None
            elif rules.meta.match(bare) and not (_CONDITION.match(bare) and _DIGIT.search(bare)):
                rest = _after(_AFTER_COLON, rest)  # "Here's the answer: admission is 9 euros"
            else:
                claim = text if text == rest else text[:1].upper() + text[1:]
                return _Clause(claim, part.start, part.end, question)
        return None

    def _without_introduction(self, text: str) -> tuple[str, str]:
        """A question that ``text`` repeats, or "", and ``text`` without it, a greeting, an announcement of the answer,
        and any mention of the documents in general."""
        rules, repeated = self._rules, ""
        text = _without(self._greeting(text), text)
        if opener := rules.openers.match(fold(text)):
            question = _QUOTED.search(opener[0])
            repeated = text[question.start() + 1 : question.end() - 1] if question else ""
            text = _without(opener, text)
        text = _without(rules.attributions.match(fold(text)), text)
        trailing = rules.trailing.search(fold(text))
        return repeated, text[: trailing.start()] + text[trailing.end() :] if trailing else text

    def _greeting(self, text: str) -> re.Match[str] | None:
        """A greeting before a sentence on the same line: "Hi Anna, "."""
        found = self._rules.greetings.match(fold(text))
        return _GREETED.match(text, found.end()) if found else None

    def _is_phrase(self, folded: str) -> bool:
        """Whether it is a greeting, an interjection or the name of a source."""
        rules = self._rules
        greeting = None if _DIGIT.search(folded) else rules.greetings.match(folded)
        allowed = (
            (greeting, _MAX_GREETING_WORDS),
            (rules.interjections.match(folded), 0),
            (rules.labels.match(folded), _MAX_SOURCE_WORDS),
        )
        return any(found and count_words(folded[found.end() :]) <= most for found, most in allowed)


def _after(pattern: re.Pattern[str], text: str) -> str:
    """The text after the first match; "" if there is none."""
    found = pattern.search(fold(text))
    return text[found.end() :] if found else ""


def _without(prefix: re.Match[str] | None, text: str) -> str:
    """``text`` without the prefix, if words follow it."""
    return text[prefix.end() :] if prefix and has_words(text[prefix.end() :]) else text


def _parts(text: str) -> list[_Clause]:
    """The clauses that semicolons separate, if they have some length and there are no brackets or quotations; otherwise
    the whole sentence."""
    whole = _part(text, 0, len(text))
    cuts = [] if _NESTED.search(text) else [found.end() for found in _CLAUSES.finditer(text)]
    if not cuts:
        return [whole]
    parts = [_part(text, start, end) for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return parts if all(len(part.text.split()) >= _MIN_CLAUSE_WORDS for part in parts) else [whole]


def _part(sentence: str, start: int, end: int) -> _Clause:
    raw = sentence[start:end]
    text = plain(raw) if start == 0 else inline(raw)
    return _Clause(text.rstrip(";； ") or text, start + len(raw) - len(raw.lstrip()), start + len(raw.rstrip()))


def _row(sentence: Sentence, previous: Sequence[Sentence]) -> list[Claim]:
    """The claim of a table row: each cell after its column's name. The first row of a table is its header."""
    first = len(previous)
    while first and ROW.match(previous[first - 1].text) and "\n\n" not in previous[first - 1].text:
        first -= 1
    header = cells(previous[first].text) if first < len(previous) else []
    values = cells(sentence.text)
    if not header or not any(values) or not sentence.complete:
        return []
    part = _part(sentence.text, 0, len(sentence.text))
    span = Span(sentence.span.start + part.start, sentence.span.start + part.end)
    return [Claim(text=verbalise_row(header, values), span=span, sentence_index=sentence.index)]
