"""Extracts the claims in a sentence with rules. Any text is a claim unless it is known to state nothing."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from judges.claims.claim_context import COLON, QUESTION, ContextFinder, has_words, is_title
from judges.claims.harmless import HarmlessText
from judges.claims.known_text import AnyText, KnownText, fold
from judges.concurrency import MAX_INLINE_CHARS, run
from judges.text.fragments import Fragment, FragmentKind, Resolves, code_fragments, spoken
from judges.text.languages.rules import LANGUAGES, claim_rules
from judges.text.markdown import ROW, cell_fragments, fragments, verbalise_row
from judges.types import Claim, Sentence, Span

_CODE = re.compile(r"\s*(`{1,3})[^`]+\1[\s.:]*\Z")
_COMMENT_LINE = re.compile(r"\s*(?:#(?![!{\[])|//|--|;;|<!--|/\*+|\*(?!\w))\s*(?P<text>.*?)\s*(?:\*/|-->)?\s*\Z")
_QUOTED = re.compile("""["“«„'][^"”»“]{1,300}["”»“']""")
_CLAUSES = re.compile(r"[;；]\s+")
_NESTED = re.compile(r"[([{（「『“\"«„`]")
_NAME = re.compile(r":? ?(?:\S+\.[A-Za-z][A-Za-z0-9]{1,4}|https?://\S+)")
"""A file name or URL."""
_NOTE = re.compile(r"\s*(?:\[\^|[¹²³⁴-⁹])")
"""The beginning of a footnote."""
_DIGITS = re.compile(r"\d+")
_SOURCES = re.compile(r"[,;|\n•]|\s(?:and|und|et|y)\s")
"""Separates the sources in a list."""
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_AROUND_SOURCES = " \t\r\n.:：*_`\"'“”()[]"
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
    question: str = ""
    """The question that the text repeats and answers."""


class HeuristicClaimExtractor:
    """Finds the claims in a reply without a model. Implements ``judges.protocols.ClaimExtractor``.

    A sentence is a single claim, unless semicolons divide it into clauses; then each clause is a claim. Text on the
    closed list in ``judges.claims.harmless`` is not a claim, whether it stands alone or introduces a claim. All other
    text in a sentence is part of a claim's span. A claim's ``context`` is the text needed to understand it, such as the
    sentence that its pronoun or connective refers to, or the lead-in of its list.

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
        self._resolves = resolves
        self._message = message
        self._unread = unread
        self._is_polite = lru_cache(maxsize=256)(self._has_only_courtesies)
        self._contexts = ContextFinder(self._rules, self._stated)
        # Cached, because each sentence is read again as the context of the next one.
        self._clauses: dict[tuple[int, str], Sequence[_Clause]] = {}
        self._rows: dict[int, tuple[Sentence, Sequence[str]]] = {}
        """Maps each table row read so far to the cells of the table's header."""
        self._statements: dict[int, tuple[Sentence, str]] = {}

    async def extract(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        """Return the claims in ``sentence``, if any. ``previous`` holds the sentences before it, in order."""
        return await run(len(sentence.text) <= MAX_INLINE_CHARS, self._claims_of, sentence, previous)

    def _claims_of(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        if sentence.in_code:
            return [_claim(sentence, clause) for clause in self._comments(sentence.text)]
        if ROW.match(sentence.text):
            return [_claim(sentence, clause) for clause in self._row(sentence, previous)]
        pieces = fragments(sentence.text, self._resolves)
        number = self._contexts.unexpected_number(sentence, previous)
        whole = _trimmed(sentence.text, 0, len(sentence.text))
        clauses = self._clauses_of(sentence, pieces)
        if not number and (answered := self._answered(spoken(pieces), clauses, previous)) is not None:
            answer, known = answered
            return [_claim(sentence, _Clause(answer, *whole), question_known=known)]
        above = self._contexts.above(sentence, previous)
        claims: list[Claim] = []
        before: str | None = None
        for clause in clauses:
            if self._is_listed_source(clause.text, above.nearest):
                continue
            context, question = self._contexts.context_of(
                sentence, clause.text, clause.question, previous, before, above
            )
            told = replace(clause, text=f"{number} {clause.text}") if number and before is None else clause
            claims.append(_claim(sentence, told, context=context, question=question))
            before = clause.text
        if claims:
            return claims
        if number:
            return [_claim(sentence, _Clause(f"{number} {spoken(pieces)}", *whole))]
        if self._contexts.unexpected_number(sentence, previous, label=True):
            return [_claim(sentence, _Clause(spoken(pieces), *whole))]
        if self._is_only_markers(sentence, pieces, previous):
            return [_claim(sentence, _Clause(sentence.text.strip(), *whole))]
        return []

    def _is_only_markers(self, sentence: Sentence, pieces: Sequence[Fragment], previous: Sequence[Sentence]) -> bool:
        """Return whether a reply begins with a sentence of markers, which cite nothing there ("[8]")."""
        if self._resolves is None or any(earlier.index >= 0 for earlier in previous):
            return False
        kinds = {piece.kind for piece in pieces}
        is_marked = FragmentKind.MARKER in kinds <= {FragmentKind.MARKER, FragmentKind.SYNTAX, FragmentKind.TEXT}
        return is_marked and not any(map(str.isalnum, spoken(pieces)))

    def _clauses_of(self, sentence: Sentence, pieces: Sequence[Fragment] = ()) -> Sequence[_Clause]:
        """Return the clauses of ``sentence``. ``pieces`` are its fragments, if they are already known."""
        key = (sentence.index, sentence.text)
        found = self._clauses.get(key)
        if found is None:
            pieces = pieces or fragments(sentence.text, self._resolves)
            found = self._clauses[key] = tuple(self._find_clauses(sentence, pieces))
        return found

    def _find_clauses(self, sentence: Sentence, pieces: Sequence[Fragment]) -> list[_Clause]:
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
            if (clause := self._clause(read, is_first=sentence.index == 0)) is not None:
                claim, question = clause
                found.append(_Clause(claim, start, end, question))
        return found

    def _stated(self, sentence: Sentence) -> str:
        """Return all claims in ``sentence`` as one text."""
        known = self._statements.get(sentence.index)
        if known is not None and known[0] is sentence:
            return known[1]
        stated = "" if ROW.match(sentence.text) else " ".join(clause.text for clause in self._clauses_of(sentence))
        self._statements[sentence.index] = (sentence, stated)
        return stated

    def _clause(self, text: str, *, is_first: bool = False) -> tuple[str, str] | None:
        """Return the statement in a clause, without its introduction, and the question that the clause repeats. Return
        None if the clause states nothing."""
        harmless, asked = self._harmless, ""
        label = self._rules.labels.match(fold(text))
        if label and self._names_sources(text[label.end() :], numbers=not is_first):
            return None
        rest, said = text, False
        while has_words(rest):
            if harmless.is_courtesy(rest) and not (said and harmless.answer_in(rest)):
                return None
            if refused := harmless.refusal(rest):
                rest, said = self._after_contrast(rest[refused:].lstrip()), True
                continue
            if (end := harmless.prefix(rest)) and not (said and harmless.answer_in(rest)):
                rest = rest[end:].lstrip()
                continue
            question, bare = self._without_introduction(rest)
            if bare != rest:
                asked, rest, said = question or asked, bare, True
                continue
            if (tag := harmless.suffix(rest)) < len(rest):
                rest = rest[:tag]
                continue
            break
        if not has_words(rest):
            return (rest, asked) if self._is_unknown_address(rest) else None
        is_lead_in = rest == text and COLON.search(rest) is not None
        if harmless.is_question(rest) or (is_lead_in and harmless.is_label(rest, numbering=True)):
            return None
        told = rest if rest == text else rest[:1].upper() + rest[1:]
        return (told.rstrip("?？ ") + "." if QUESTION.search(told) and rest != text else told), asked

    def _is_unknown_address(self, text: str) -> bool:
        """Return whether ``text``, which has no words, is an address that isn't in any document."""
        return any(map(str.isalnum, text)) and not self._harmless.quotes(text)

    def _after_contrast(self, text: str) -> str:
        """Return ``text`` without a leading "but" or similar word."""
        found = self._rules.contrasts.match(f", {fold(text)}")
        return text[found.end() - 2 :] if found else text

    def _without_introduction(self, text: str) -> tuple[str, str]:
        """Return the question that ``text`` repeats (or ""), and the rest of ``text``. Announcements of the answer and
        general mentions of the documents ("according to the documents") are removed from the rest."""
        rules, asked = self._rules, ""
        if (opener := rules.openers.match(fold(text))) and self._harmless.introduces(opener[0]):
            question = _QUOTED.search(opener[0])
            asked = text[question.start() + 1 : question.end() - 1] if question else ""
            text = _without(opener, text)
        if (source := rules.attributions.match(fold(text))) and self._names_documents(source[0]):
            text = _without(source, text)
        trailing = rules.trailing.search(fold(text))
        if trailing is None or not self._names_documents(trailing[0]):
            return asked, text
        return asked, text[: trailing.start()] + text[trailing.end() :]

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
        question = previous[0].plain if previous and previous[0].index < 0 else ""
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

    def _is_listed_source(self, text: str, nearest: str) -> bool:
        """Return whether ``text`` is an item of a list of sources that names nothing new."""
        return bool(nearest and self._rules.labels.match(fold(nearest))) and self._names_sources(text)

    def _names_sources(self, text: str, *, numbers: bool = True) -> bool:
        """Return whether ``text`` only names sources: documents, locations in them, or titles made of known words. With
        ``numbers``, a document's number counts as its name."""
        parts = [part for found in _SOURCES.split(text) if (part := found.strip(_AROUND_SOURCES))]
        return self._is_source(text.strip(_AROUND_SOURCES), numbers=numbers) or all(
            self._is_source(part, numbers=numbers)
            or self._harmless.is_label(_YEAR.sub("", part) if self._harmless.knows_numbers(part) else part)
            for part in parts
        )

    def _is_source(self, text: str, *, numbers: bool) -> bool:
        """Return whether ``text`` is the name of a document, with or without a location in it, or its number."""
        known = self._resolves is not None and (numbers or any(map(str.isalpha, text))) and self._resolves(f"[{text}]")
        return known or self._harmless.is_name(text)

    def _row(self, sentence: Sentence, previous: Sequence[Sentence]) -> list[_Clause]:
        """Return the claim in a table row: its cells, each preceded by the name of its column. Known names in a column
        of sources are left out. The first row is the header, which is a claim only if one of its cells is not a
        label."""
        header, values = self._header(previous), self._cells(sentence.text)
        self._rows[sentence.index] = (sentence, values if header is None else header)
        if not any(has_words(value) or self._is_unknown_address(value) for value in values):
            return []
        text = sentence.text
        start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        if header is None:
            told = [value for value in values if value and not self._harmless.is_label(value)]
            return [_Clause(", ".join(value for value in values if value), start, end)] if told else []
        if len(header) == len(values):
            listed = map(self._is_listed_source, values, (f"{name}:" for name in header))
            values = ["" if is_source else value for value, is_source in zip(values, listed, strict=True)]
        stated = verbalise_row(header, values)
        return [_Clause(stated, start, end)] if stated else []

    def _header(self, previous: Sequence[Sentence]) -> Sequence[str] | None:
        """Return the cells of the header row of the table that continues after ``previous``, or None if there is no
        such table. The search stops at a row that was already processed, because its header is known.
        """
        above: Sentence | None = None
        for place in range(len(previous) - 1, -1, -1):
            if not _continues_table(previous[place]):
                break
            above = previous[place]
            known = self._rows.get(above.index)
            if known is not None and known[0] is above:
                return known[1]
        return None if above is None else self._cells(above.text)

    def _cells(self, row: str) -> list[str]:
        cells = [spoken(cell) for cell in cell_fragments(row, fragments(row, self._resolves))]
        return cells[1:-1] if len(cells) > 2 and not cells[-1] else cells[1:]

    def _comments(self, text: str) -> list[_Clause]:
        """Return the comments in code that state something."""
        found = []
        for line in code_fragments(text):
            comment = _COMMENT_LINE.match(text[line.start : line.end]) if line.kind is FragmentKind.TEXT else None
            if comment is None or not self._harmless.has_verb(comment["text"]):
                continue
            if (clause := self._clause(comment["text"])) is not None:
                start = line.start + comment.start("text")
                found.append(_Clause(clause[0], start, start + len(comment["text"])))
        return found


def _continues_table(above: Sentence) -> bool:
    """Return whether a row below ``above`` belongs to the same table."""
    return ROW.match(above.text) is not None and "\n\n" not in above.text


def _claim(
    sentence: Sentence, clause: _Clause, *, context: str = "", question: str = "", question_known: bool = True
) -> Claim:
    return Claim(
        text=clause.text,
        span=Span(sentence.span.start + clause.start, sentence.span.start + clause.end),
        sentence_index=sentence.index,
        context=context,
        question=question,
        question_known=question_known,
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
