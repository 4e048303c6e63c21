"""Extracts the claims in a sentence with rules. Any text is a claim unless it is known to state nothing."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from judges.claims.claim_context import (
    COLON,
    QUESTION,
    ContextFinder,
    OuterLines,
    continues_table,
    has_words,
    is_title,
    joined,
    starts_item,
)
from judges.claims.harmless import HarmlessText
from judges.claims.introductions.label_scopes import LabelFinder, ScopedLabel
from judges.claims.known_text import AnyText, KnownText, fold
from judges.claims.sources.reply_opening import ReplyOpening
from judges.claims.sources.source_names import SourceNames
from judges.claims.table_rows import TableRows
from judges.concurrency import MAX_INLINE_CHARS, run
from judges.text.fragments import Fragment, FragmentKind, Resolves, code_fragments, spoken
from judges.text.languages.rules import LANGUAGES, claim_rules
from judges.text.markdown import fragments, is_row
from judges.types import Claim, Sentence, Span

_CODE = re.compile(r"\s*(`{1,3})[^`]+\1[\s.:]*\Z")
_COMMENT_LINE = re.compile(r"\s*(?:#(?![!{\[])|//|--|;;|<!--|/\*+|\*(?!\w))\s*(?P<text>.*?)\s*(?:\*/|-->)?\s*\Z")
_CLAUSES = re.compile(r"[;；]\s+")
_NESTED = re.compile(r"[([{（「『“\"«„`]")
_NAME = re.compile(r":? ?(?:\S+\.[A-Za-z][A-Za-z0-9]{1,4}|https?://\S+)")
"""A file name or URL."""
_CUT_OFF = re.compile(r"[^\s.!?:…。！？：)\]>|][ \t]*\n[ \t]*\Z")
"""The end of a line that doesn't end a sentence or a paragraph."""
_NOTE = re.compile(r"\s*(?:\[\^|[¹²³⁴-⁹])")
"""The beginning of a footnote."""
_DIGITS = re.compile(r"\d+")
_MIN_CLAUSE_WORDS = 4
_MAX_MESSAGE = 600
"""Maximum length, in characters, of a message that a "yes" may answer as a whole. In a longer message, a "yes" answers
only the paragraph with the question."""
_START = attrgetter("start")


class _Clause(Struct, frozen=True):
    """A part of a sentence that makes a claim. ``start`` and ``end`` are positions in the sentence's raw text."""

    text: str
    start: int
    end: int


class HeuristicClaimExtractor:
    """Finds the claims in a reply without a model. Implements ``judges.protocols.ClaimExtractor`` and
    ``judges.claims.introductions.label_lookahead.LabelReader``.

    A sentence is a single claim, unless semicolons divide it into clauses; then each clause is a claim. Text on the
    closed list in ``judges.claims.harmless`` is not a claim, whether it stands alone or introduces a claim, unless it
    is a label that introduces nothing. All other text in a sentence is part of a claim's span. A claim's ``context`` is
    the text needed to understand it, such as the sentence that its pronoun or connective refers to, or the lead-in of
    its list.

    Args:
        known: the text of the question and the documents. Without it, every heading or topic counts as known.
        resolves: returns whether a bracketed text is a citation marker that names one of the documents. Without it,
            everything that looks like a marker is treated as one.
        languages: codes of the phrase tables to use. Raises ValueError for a language without a table.
        message: the user's message, which a "yes" or a courtesy may answer. None means that it isn't known, "" that
            there is none.
        unread: whether the request has other, unknown text that a "yes" may answer if the message asks nothing.
    """

    def __init__(
        self,
        *,
        known: KnownText | None = None,
        message: str | None = None,
        unread: bool = False,
        resolves: Resolves | None = None,
        languages: Sequence[str] = LANGUAGES,
    ) -> None:
        self._rules = claim_rules(tuple(languages))
        self._harmless = HarmlessText(known or AnyText(), languages)
        self._sources = SourceNames(self._harmless, self._rules, resolves)
        self._table_rows = TableRows(self._harmless, self._sources, resolves)
        self._labels = LabelFinder(self._harmless, self._sources, resolves)
        self._resolves = resolves
        self._message = message
        self._unread = unread
        self._is_polite = lru_cache(maxsize=256)(self._has_only_courtesies)
        self._contexts = ContextFinder(self._rules, self._stated, self._harmless.names)
        self._opening = ReplyOpening(self._stated, self._harmless, self._sources, self._is_polite)
        # Cached, because each sentence is read again as the context of the next one.
        self._clauses: dict[tuple[int, str, bool], Sequence[_Clause]] = {}
        self._tables: dict[int, tuple[Sentence, str]] = {}
        """Maps each table row read so far to the context of its table."""
        self._statements: dict[int, tuple[Sentence, str]] = {}

    async def extract(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        """Return the claims in ``sentence``, if any. ``previous`` holds the sentences before it, in order."""
        return await run(len(sentence.text) <= MAX_INLINE_CHARS, self._claims_of, sentence, previous)

    def label_of(self, sentence: Sentence, previous: Sequence[Sentence]) -> ScopedLabel | None:
        """Return the label that ``sentence`` is, or None if it is no label or makes a claim."""
        label = self._labels.find(sentence, previous)
        return None if label is None or self._claims_of(sentence, previous) else label

    def states(self, sentence: Sentence, previous: Sequence[Sentence]) -> bool:
        """Return whether ``sentence`` has text to judge: a claim, code or an address."""
        if sentence.in_code or _CODE.match(sentence.text):
            return any(map(str.isalnum, sentence.plain))
        if self._claims_of(sentence, previous, begins=False):  # sources are nothing that a label can introduce
            return True
        return any(map(str.isalnum, sentence.plain)) and not has_words(sentence.plain)

    def refuses(self, sentence: Sentence, label: Sentence) -> bool:
        """Return whether ``sentence`` is a refusal to tell what the user asked about the thing that ``label`` names."""
        return self._labels.refuses(sentence, label)

    def _claims_of(
        self, sentence: Sentence, previous: Sequence[Sentence], *, begins: bool | None = None
    ) -> Sequence[Claim]:
        """Return the claims in ``sentence``. ``begins`` says whether the reply has said nothing before; by default,
        this is read from ``previous``."""
        if sentence.in_code:
            return [_claim(sentence, clause) for clause in self._comments(sentence.text)]
        if is_row(sentence):
            return self._row(sentence, previous)
        pieces = fragments(sentence.text, self._resolves, sentence.marks)
        number = self._contexts.unexpected_number(sentence, previous)
        begins = self._opening.begins_after(previous) if begins is None else begins
        clauses = self._clauses_of(sentence, pieces, begins=begins)
        if not number and (answered := self._answered(spoken(pieces), clauses, previous)) is not None:
            answer, known = answered
            return [_claim(sentence, _whole(sentence, answer), question_known=known)]
        above = self._contexts.above(sentence, previous) if clauses else OuterLines("")
        claims: list[Claim] = []
        before: str | None = None
        for clause in clauses:
            if self._sources.are_listed(clause.text, above.nearest, numbers=not begins):
                continue
            context, question = self._contexts.context_of(sentence, clause.text, previous, before, above)
            context = context or (self._introduction(previous) if before is None else "")
            begun = (number or self._cut_off(sentence, previous)) if before is None else ""
            told = replace(clause, text=f"{begun} {clause.text}") if begun else clause
            alone = self._stands_alone(clause.text, context, above)
            claims.append(_claim(sentence, told, context=context, question=question, stands_alone=alone))
            before = clause.text
        return claims or self._claims_of_harmless(sentence, pieces, previous, begins=begins)

    def _stands_alone(self, text: str, context: str, above: OuterLines) -> bool:
        """Return whether a claim can be understood without its context. The context must only consist of the lines
        above the claim, and the claim must be more than a name. If one of these lines names something that no document
        mentions, the claim may be about that."""
        if not context or context != joined(above.context) or self._contexts.points_back(text):
            return False
        return self._harmless.is_in_documents(context) and not self._harmless.is_label(text)

    def _claims_of_harmless(
        self, sentence: Sentence, pieces: Sequence[Fragment], previous: Sequence[Sentence], *, begins: bool
    ) -> Sequence[Claim]:
        """Return the claim that a sentence makes only because of its place in the reply, if any."""
        if number := self._contexts.unexpected_number(sentence, previous):
            return [_claim(sentence, _whole(sentence, f"{number} {spoken(pieces)}"))]
        if self._contexts.unexpected_number(sentence, previous, label=True):
            return [_claim(sentence, _whole(sentence, spoken(pieces)))]
        if begins and self._resolves is not None and self._opening.cites_nothing(sentence.text, pieces):
            return [_claim(sentence, _whole(sentence, sentence.text.strip()))]
        if sentence.introduces_nothing and self._labels.find(sentence, previous) is not None:
            return [_claim(sentence, _whole(sentence, f"{_question(previous)} {spoken(pieces)}".lstrip()))]
        return []

    def _introduction(self, previous: Sequence[Sentence]) -> str:
        """Return the sentence before a claim if it is a courtesy or an announcement that names what the claim is about
        ("Thanks for asking about children!"), otherwise ""."""
        before = previous[-1] if previous else None
        if before is None or before.index < 0 or before.in_code or self._clauses_of(before):
            return ""
        return before.plain if self._harmless.is_courtesy(before.plain) and self._harmless.names(before.plain) else ""

    def _cut_off(self, sentence: Sentence, previous: Sequence[Sentence]) -> str:
        """Return the text before a claim if it states nothing and only a line break cuts it off, so that the claim
        continues it ("The documents don't say that", "the fee is due"). Otherwise, return ""."""
        before = previous[-1] if previous else None
        if before is None or before.index < 0 or before.in_code or not _CUT_OFF.search(before.text):
            return ""
        is_apart = starts_item(sentence) or is_title(before) or is_row(before) or not has_words(before.plain)
        return "" if is_apart or self._clauses_of(before) else before.plain.strip()

    def _clauses_of(
        self, sentence: Sentence, pieces: Sequence[Fragment] = (), *, begins: bool = False
    ) -> Sequence[_Clause]:
        """Return the clauses of ``sentence``. ``pieces`` are its fragments, if they are already known. ``begins`` means
        that the reply has said nothing before."""
        key = (sentence.index, sentence.text, begins)
        found = self._clauses.get(key)
        if found is None:
            pieces = pieces or fragments(sentence.text, self._resolves, sentence.marks)
            found = self._clauses[key] = tuple(self._find_clauses(sentence, pieces, begins=begins))
        return found

    def _find_clauses(self, sentence: Sentence, pieces: Sequence[Fragment], *, begins: bool) -> list[_Clause]:
        text = sentence.text
        if not pieces or sentence.in_code or _CODE.match(text):
            return []
        marked = pieces[0].kind is FragmentKind.MARKER
        if (marked or _NOTE.match(text)) and self._harmless.is_footnote(spoken(pieces)):
            return []
        labelled = is_title(sentence) or (marked and bool(_NAME.fullmatch(spoken(pieces))))
        found = []
        for start, end, read in _parts(text, pieces):
            if labelled and self._harmless.is_label(read, numbering=True):
                continue
            if (claim := self._clause(read, begins=begins)) is not None:
                found.append(_Clause(claim, start, end))
        return found

    def _stated(self, sentence: Sentence) -> str:
        """Return all claims in ``sentence`` as one text."""
        known = self._statements.get(sentence.index)
        if known is not None and known[0] is sentence:
            return known[1]
        stated = "" if is_row(sentence) else " ".join(clause.text for clause in self._clauses_of(sentence))
        self._statements[sentence.index] = (sentence, stated)
        return stated

    def _clause(self, text: str, *, begins: bool = False) -> str | None:
        """Return the statement in a clause, without introductions that name nothing. Return None if the clause states
        nothing. ``begins`` means that the reply has said nothing before."""
        harmless = self._harmless
        label = self._rules.labels.match(fold(text))
        if label and self._sources.names(text[label.end() :], numbers=not begins):
            return None
        rest, said, named = text, False, ""
        while has_words(rest):
            if harmless.is_courtesy(rest) and not (said and harmless.answer_in(rest)):
                return None
            if refused := harmless.refusal(rest):
                named = named or (rest if harmless.names(rest[:refused]) else "")
                rest, said = self._after_contrast(rest[refused:].lstrip()), True
                continue
            if (end := harmless.prefix(rest)) and not (said and harmless.answer_in(rest)):
                rest = rest[end:].lstrip()
                continue
            bare = self._without_introduction(rest)
            if bare != rest:
                rest, said = bare, True
                continue
            if (tag := harmless.suffix(rest)) < len(rest):
                rest = rest[:tag]
                continue
            break
        if not has_words(rest):
            return rest if harmless.is_unknown_address(rest) else None
        is_lead_in = rest == text and COLON.search(rest) is not None
        if harmless.is_question(rest) or (is_lead_in and harmless.is_label(rest, numbering=True)):
            return None
        rest = named or rest
        told = rest if rest == text else rest[:1].upper() + rest[1:]
        return told.rstrip("?？ ") + "." if QUESTION.search(told) and rest != text else told

    def _after_contrast(self, text: str) -> str:
        """Return ``text`` without a leading "but" or similar word."""
        found = self._rules.contrasts.match(f", {fold(text)}")
        return text[found.end() - 2 :] if found else text

    def _without_introduction(self, text: str) -> str:
        """Return ``text`` without an announcement of the answer and without general mentions of the documents
        ("according to the documents")."""
        rules = self._rules
        text = _without(rules.openers.match(fold(text)), text)
        if (source := rules.attributions.match(fold(text))) and self._names_documents(source[0]):
            text = _without(source, text)
        trailing = rules.trailing.search(fold(text))
        if trailing is None or not self._names_documents(trailing[0]):
            return text
        return text[: trailing.start()] + text[trailing.end() :]

    def _names_documents(self, attribution: str) -> bool:
        """Return whether each number in a phrase that mentions documents is a document's number or occurs in a
        document."""
        resolves = self._resolves
        return self._harmless.knows_numbers(attribution) or (
            resolves is None or all(resolves(f"[{number}]") for number in _DIGITS.findall(attribution))
        )

    def _answered(self, text: str, clauses: Sequence[_Clause], previous: Sequence[Sentence]) -> tuple[str, bool] | None:
        """If ``text`` answers the preceding question with "yes", "no" or a courtesy that may mean either, return the
        question followed by ``text``, and True. If the question isn't known, return ``text`` and False. If ``text``
        begins with a courtesy but also makes claims (``clauses``), return ``text`` and True. If ``text`` isn't an
        answer, return None."""
        harmless = self._harmless
        first = not any(sentence.index >= 0 for sentence in previous)
        if not harmless.answer_in(text, first=first):
            return None
        asked, stated = self._contexts.asked_before(previous, self._message_before(previous), self._is_polite)
        if asked is None and self._message is not None:
            stated = stated or harmless.asks_nothing(self._message)  # "You're welcome!" replies to "Thanks!"
        if not harmless.answers(text, asked, stated=stated, first=first):
            return None
        if clauses and (end := harmless.prefix(text)) and not harmless.answer_in(text[end:]):
            return text, True
        return (text, False) if not asked or harmless.asks_nothing(asked) else (f"{asked} {text}", True)

    def _message_before(self, previous: Sequence[Sentence]) -> str | None:
        """Return the user's message, or, if it is long, only the paragraph with the question. Return None if the
        question isn't known."""
        message = self._message
        question = _question(previous)
        if message is None or (self._unread and self._harmless.asks_nothing(message)):
            return None
        if len(message) <= _MAX_MESSAGE:
            return message or question
        at = message.rfind(question) if question else -1
        if at < 0:
            return None
        start = max(message.rfind("\n\n", 0, at), at - _MAX_MESSAGE, 0)
        end = message.find("\n\n", at + len(question))
        return message[start : end if end >= 0 else None][: 3 * _MAX_MESSAGE].strip()

    def _has_only_courtesies(self, text: str) -> bool:
        """Return whether ``text`` consists of courtesies."""
        return self._harmless.is_courtesy(text[self._harmless.prefix(text) :])

    def _row(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        stated = self._table_rows.stated(sentence, previous)
        if stated and sentence.introduces_nothing:
            stated = f"{_question(previous)} {stated}".lstrip()
        if not stated:
            return []
        context = self._table_context(sentence, previous)
        alone = bool(context) and self._harmless.is_in_documents(context)
        return [_claim(sentence, _whole(sentence, stated), context=context, stands_alone=alone)]

    def _table_context(self, row: Sentence, previous: Sequence[Sentence]) -> str:
        """Return the heading or lead-in directly above the table of ``row``. It is looked for only once."""
        place = len(previous)
        known: tuple[Sentence, str] | None = None
        while known is None and place > 0 and continues_table(above := previous[place - 1]):
            known = self._tables.get(above.index)
            known = known if known is not None and known[0] is above else None
            place -= 1
        if known is None:
            lines = self._contexts.above(previous[place] if place < len(previous) else row, previous[:place])
            known = row, joined(lines.context)
        self._tables[row.index] = row, known[1]
        return known[1]

    def _comments(self, text: str) -> list[_Clause]:
        """Return the comments in code that state something."""
        found = []
        for line in code_fragments(text):
            comment = _COMMENT_LINE.match(text[line.start : line.end]) if line.kind is FragmentKind.TEXT else None
            if comment is None or not self._harmless.has_verb(comment["text"]):
                continue
            if (clause := self._clause(comment["text"])) is not None:
                start = line.start + comment.start("text")
                found.append(_Clause(clause, start, start + len(comment["text"])))
        return found


def _whole(sentence: Sentence, text: str) -> _Clause:
    """Return ``text`` as the claim of a whole sentence."""
    return _Clause(text, *_trimmed(sentence.text, 0, len(sentence.text)))


def _question(previous: Sequence[Sentence]) -> str:
    """Return the question that the reply answers, or "" if it isn't known."""
    return previous[0].plain if previous and previous[0].index < 0 else ""


def _claim(
    sentence: Sentence,
    clause: _Clause,
    *,
    context: str = "",
    question: str = "",
    question_known: bool = True,
    stands_alone: bool = False,
) -> Claim:
    return Claim(
        text=clause.text,
        span=Span(sentence.span.start + clause.start, sentence.span.start + clause.end),
        sentence_index=sentence.index,
        context=context,
        question=question,
        question_known=question_known,
        stands_alone=stands_alone,
    )


def _without(prefix: re.Match[str] | None, text: str) -> str:
    """Return ``text`` without the prefix, if words follow the prefix."""
    return text[prefix.end() :] if prefix and has_words(text[prefix.end() :]) else text


def _parts(text: str, pieces: Sequence[Fragment]) -> list[tuple[int, int, str]]:
    """Return the position of each clause in a sentence, with the text that a judge reads for it. Semicolons separate
    clauses, unless the sentence has brackets or quotations."""
    has_clauses = (";" in text or "；" in text) and not _NESTED.search(text)
    cuts = [found.end() for found in _CLAUSES.finditer(text)] if has_clauses else []
    spans = [_trimmed(text, start, end) for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    parts = [(start, end, _read(pieces, start, end)) for start, end in spans]
    if not cuts or all(len(read.split()) >= _MIN_CLAUSE_WORDS for *_, read in parts):
        return parts
    start, end = _trimmed(text, 0, len(text))
    return [(start, end, _read(pieces, start, end))]


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    raw = text[start:end]
    return start + len(raw) - len(raw.lstrip()), start + len(raw.rstrip())


def _read(pieces: Sequence[Fragment], start: int, end: int) -> str:
    """Return the text that a judge reads for the characters from ``start`` up to ``end``."""
    inside = []
    for place in range(max(0, bisect_right(pieces, start, key=_START) - 1), len(pieces)):
        piece = pieces[place]
        if piece.start >= end:
            break
        if piece.start < start or piece.end > end:
            cut = piece.spoken[max(0, start - piece.start) : end - piece.start]
            inside.append(Fragment(max(start, piece.start), min(end, piece.end), piece.kind, cut))
        else:
            inside.append(piece)
    read = spoken(inside)
    return read.rstrip(";； ") or read
