"""Decides where a sentence ends, given a character that may end it and the text around it."""

import re
from enum import Enum, auto

from judges.sentences.blocks import BlockStructure
from judges.sentences.lookahead import LINE_ENDS, LineKind, Lookahead
from judges.text.languages.rules import SplitRules

_LABEL = re.compile(r"[\s>*_#+•–—-]*\(?(?:\d{1,3}(?:\.\d{1,3}){0,3}|[A-Za-z]|[ivxIVX]{1,5})\Z")
_ACRONYM = re.compile(r"[^\W\d_](?:\.-?[^\W\d_]{1,2})+\Z")
_ELISION = re.compile(r"\A\w{1,2}['’]")
_NUMERAL = re.compile(r"\d.*|[IVXLC]+|[A-Z]", re.DOTALL)
_OPENERS = "([{\"'“„«‚‘*_~"
_WINDOW = 48


class FullStopKind(Enum):
    """The kind of text before a full stop. It determines which text must follow for the sentence to end."""

    PLAIN = auto()
    """An ordinary word. The sentence ends unless a lower-case letter follows."""
    NEVER = auto()
    """A title or a list label. The sentence never ends here."""
    NUMBERED = auto()
    """For example, "No.", "Art." or "Jan." The sentence ends unless a number or numeral follows."""
    LOOSE = auto()
    """For example, "etc." or "p.m." The sentence ends if a capital letter follows, unless it begins an acronym or a
    weekday."""
    ENDING = auto()
    """For example, "Inc." or "U.S." The sentence ends if a word follows that usually begins a sentence."""
    INITIAL = auto()
    """A letter, such as "J." or "z." Treated like "Inc.", unless the letter is a word in itself ("a size M.")."""
    ORDINAL = auto()
    """A number, such as "3." The sentence ends unless the text that follows makes the number an ordinal."""


def classify(rules: SplitRules, text: str, start: int, at: int) -> tuple[FullStopKind, str]:
    """Return the kind of the full stop at ``text[at]`` in the sentence that begins at ``start``, and the word before
    the abbreviation.
    """
    if at - start <= 16 and _LABEL.match(text, start, at):
        return FullStopKind.NEVER, ""
    words = text[max(start, at - _WINDOW) : at].split()
    if not words:
        return FullStopKind.PLAIN, ""
    word = _ELISION.sub("", words[-1].lstrip(_OPENERS)).casefold()
    previous = words[-2].lstrip(_OPENERS) if len(words) > 1 else ""
    keys = {word, previous.casefold() + word}
    for kind, table in (
        (FullStopKind.NEVER, rules.titles),
        (FullStopKind.NUMBERED, rules.numbered),
        (FullStopKind.LOOSE, rules.loose),
        (FullStopKind.ENDING, rules.ending),
    ):
        if keys & table:
            return kind, previous
    return _by_shape(word), previous


def _by_shape(word: str) -> FullStopKind:
    if len(word) == 1 and word.isalpha():
        return FullStopKind.INITIAL
    if word.isdecimal() and len(word) <= 3:
        return FullStopKind.ORDINAL
    if _ACRONYM.match(word):
        return FullStopKind.ENDING
    return FullStopKind.PLAIN


def ends(rules: SplitRules, stop: FullStopKind, before: str, initial: str, following: str) -> bool:
    """Return whether the sentence ends at a full stop whose kind is not plain.

    Args:
        rules: the tables of abbreviations.
        stop: the kind of the full stop.
        before: the word before the abbreviation, as written.
        initial: the character before the full stop.
        following: the next word, with its full stop if it has one.
    """
    word = following.casefold()
    starts = word in rules.starters
    match stop:
        case FullStopKind.NEVER:
            return False
        case FullStopKind.NUMBERED:
            return starts or not _NUMERAL.fullmatch(following)
        case FullStopKind.LOOSE:
            return not (len(following) > 1 and following.isupper()) and word not in rules.calendar
        case FullStopKind.ENDING:
            return starts
        case FullStopKind.INITIAL:
            return starts or (initial.isupper() and _is_no_name(rules, before))
        case _:
            return starts or not (word in rules.ordinal_after or before.casefold() in rules.ordinal_before)


def _is_no_name(rules: SplitRules, before: str) -> bool:
    return before.islower() and before.isalpha() and before not in rules.initial_before


_PAIRS = dict(zip("([{（【「『《〈〔［｛", ")]}）】」』》〉〕］｝", strict=True))
# Quotation marks by family. A mark closes an open mark of its family, unless it is in a place where a quotation may
# begin.
_FAMILY = {'"': '"', "“": '"', "”": '"', "„": '"', "‘": "’", "’": "’", "‚": "’", "«": "»", "»": "»"}
_OPENING_MARKS = frozenset("“„‘‚«")
_BEFORE_OPENING = frozenset("([{-–—*_:：")
_MAX_OPEN = 400
_MAX_DEPTH = 16
_MAX_RUN = 8

CHARACTERS = "".join((*_PAIRS, *_PAIRS.values(), *_FAMILY, "`"))


class Enclosures:
    """The marks that are open at a position in a sentence. A mark that stays open for too long is dropped.

    Positions are relative to the start of the sentence.
    """

    def __init__(self) -> None:
        self._open: list[tuple[str, int]] = []

    def at(self, position: int) -> list[str]:
        """Return the closing marks that are still missing, innermost last."""
        while self._open and position - self._open[0][1] > _MAX_OPEN:
            del self._open[0]
        return [closer for closer, _ in self._open]

    def take(self, ahead: Lookahead, at: int) -> None:
        """Process the mark at ``at``. Raises MoreTextNeeded."""
        ch, position = ahead.text[at], at - ahead.start
        before = ahead.text[at - 1] if position else " "
        enclosed = self.at(position)
        if ch == "`":
            if before != "`":
                run = ch * ahead.run(at, ch, _MAX_RUN)
                self._toggle(run, position, opens=run not in enclosed)
        elif enclosed and enclosed[-1][0] == "`":
            return
        elif ch in _FAMILY:
            self._quote(ch, position, before, ahead.char(at + 1))
        elif ch not in _PAIRS:
            self._toggle(ch, position, opens=False)
        elif before not in ":;":  # otherwise a sad face
            self._toggle(_PAIRS[ch], position, opens=True)

    def _quote(self, ch: str, position: int, before: str, after: str) -> None:
        closer = _FAMILY[ch]
        is_open = any(closer == other for other, _ in self._open)
        may_open = (before.isspace() or before in _BEFORE_OPENING) and bool(after) and not after.isspace() and ch != "’"
        if is_open and may_open and ch not in _OPENING_MARKS:  # the mark before didn't open a quotation
            self._toggle(closer, position, opens=False)
        self._toggle(closer, position, opens=may_open or (ch in _OPENING_MARKS and not is_open))

    def _toggle(self, closer: str, position: int, *, opens: bool) -> None:
        if opens:
            if len(self._open) < _MAX_DEPTH:
                self._open.append((closer, position))
            return
        for depth in range(len(self._open) - 1, -1, -1):
            if self._open[depth][0] == closer:
                del self._open[depth:]
                return


HARD = frozenset("。！？｡⁇⁈⁉‼؟۔।॥։።፧။៕")
"""End marks that need no whitespace after them."""
MARKS = HARD | frozenset(".!?…")
_AFTER_MARK = frozenset("\"'”’»*_~¹²³⁰⁴⁵⁶⁷⁸⁹")
_CITES = frozenset("[【")
_COLONS = frozenset(":：")
_MARKUP = frozenset("*_~\"'“„‘‚«»([{¿¡")
_INDENT = frozenset(" \t")
_AFTER_FENCE = frozenset("\r\n \t")
_OPEN_ENDED = frozenset(".!?…,;&+/–-，、；")
"""Characters that, before a line feed, show that the sentence continues or that a full stop doesn't end it."""
_MAX_CLOSERS = 16
_MAX_MARKUP = 6
_MAX_FENCE_SPACE = 1000
_MAX_INDENT = 3
_OPENING = 40
_LINE = 48


class BoundaryDetector:
    """Decides, for each character at which the sentence in ``ahead`` may end, whether it does and at which position.

    Every method takes a position and returns the end of the sentence, including the whitespace after it, or None. If
    the result is not certain yet, the method raises MoreTextNeeded and leaves the state unchanged.
    """

    def __init__(self, ahead: Lookahead, rules: SplitRules, blocks: BlockStructure) -> None:
        self._ahead = ahead
        self._rules = rules
        self._blocks = blocks
        self._open = Enclosures()

    def reset(self) -> None:
        """Begin a new sentence, with no open brackets or quotations."""
        self._open = Enclosures()

    def decide(self, at: int) -> int | None:
        """Return the end of the sentence in running text."""
        ch = self._ahead.text[at]
        if ch in LINE_ENDS:
            return self._line_end(at)
        if ch in MARKS:
            return self._mark(at, ch)
        if ch in _COLONS:
            return self._colon(at, ch)
        self._open.take(self._ahead, at)
        return None

    def line(self, at: int) -> int | None:
        """Return the end of a sentence that ends with its line, because the line is a separate block."""
        return self._ahead.skip_space(at)

    def fence(self, at: int, marker: str, column: int) -> int | None:
        """Return the end of a sentence that ends with a line of a code block. If the next line closes the block, this
        is the end of the block. The block also ends before a line that is indented less than its list item.
        """
        ahead = self._ahead
        if ahead.text[at] != "\n":
            return None
        line = ahead.skip(at + 1, _INDENT, _MAX_FENCE_SPACE)
        if ahead.char(line) in ("", "\r", "\n"):
            return None
        indent = len(ahead.text[at + 1 : line].expandtabs(4)) - column
        if indent < 0:
            return line
        run = ahead.run(line, marker[0]) if indent <= _MAX_INDENT else 0
        if run < len(marker):
            return None
        end = ahead.skip(line + run, _INDENT, _MAX_FENCE_SPACE)
        if end >= ahead.limit or ahead.char(end) not in _AFTER_FENCE:
            return None
        self._blocks.lost = self._blocks.lost or ahead.char(end) in _INDENT
        return ahead.skip_space(end)

    def _line_end(self, at: int) -> int | None:
        ahead = self._ahead
        after = ahead.skip_space(at)
        if after == ahead.limit:
            return after
        if not ahead.char(after):
            return None
        if ahead.lines(at, after) > 1:
            return after
        line = self._blocks.line(ahead.text[at:after], after)
        if (line.kind is not LineKind.TEXT and not line.continues) or ahead.definition(after):
            return after
        is_open = bool(self._open.at(at - ahead.start)) and not line.continues
        return None if is_open or self._line_continues(at, after, is_text=line.continues) else after

    def _line_continues(self, at: int, after: int, *, is_text: bool) -> bool:
        line = self._ahead.text[max(self._ahead.start, at - _LINE) : at].rstrip()
        if line[-1:] in _COLONS:
            return False
        if is_text or self._ahead.char(after) == "`":  # a line of code in a paragraph, which is read as one text
            return True
        last = line.split()[-1:]
        return (
            line[-1:] in _OPEN_ENDED
            or self._ahead.starts_lower_case(after)
            or not self._rules.dangling.isdisjoint(last)
        )

    def _mark(self, at: int, mark: str) -> int | None:
        ahead = self._ahead
        if ahead.char(at + 1) in MARKS:  # the last mark of a run decides
            return None
        end, closed, enclosed = self._past_closers(at + 1)
        if end > ahead.limit or enclosed:
            return None
        following = ahead.char(end)
        if mark in HARD or (mark in "!?" and _is_unspaced(following)):
            continues = not following or (closed and _continues_quotation(following))
            return None if continues else ahead.skip_space(end)
        return self._soft_end(at, end, asks=mark == "?" and not closed) if following.isspace() else None

    def _past_closers(self, at: int) -> tuple[int, bool, list[str]]:
        """Skip the closing marks and citations after an end mark. Return the position after them, whether a quotation
        or bracket was closed, and the marks still open."""
        ahead, closed = self._ahead, False
        enclosed = self._open.at(at - ahead.start)
        for _ in range(_MAX_CLOSERS):
            ch = ahead.char(at)
            if (closer := _FAMILY.get(ch, ch)) in enclosed:
                del enclosed[len(enclosed) - 1 - enclosed[::-1].index(closer) :]
                closed = True
            elif ch in _AFTER_MARK:
                closed = closed or ch not in "*_~"
            elif ch in _CITES:
                cited = ahead.citation(at)
                if cited is None:
                    break
                at = cited
                continue
            elif not ("»" in enclosed and ch.isspace() and ch not in LINE_ENDS and ahead.char(at + 1) == "»"):
                break
            at += 1
        return at, closed, enclosed

    def _soft_end(self, at: int, end: int, *, asks: bool) -> int | None:
        """Return the end of the sentence if the mark at ``at``, with its closing marks up to ``end``, ends it."""
        ahead, cites = self._ahead, None
        after = ahead.skip_space(end)
        if after < ahead.limit and after - end <= 2 and ahead.char(after) in _CITES and not ahead.lines(end, after):
            cited = ahead.citation(after)
            if cited is not None and cited < ahead.limit and (not ahead.char(cited) or ahead.char(cited).isspace()):
                cites, end, after = after, cited, ahead.skip_space(cited)
        if after == ahead.limit or (ahead.char(after) and ahead.lines(end, after) > 1):
            return after
        if not ahead.char(after) or ahead.char(after) in MARKS:
            return None
        word = ahead.skip(after, _MARKUP, _MAX_MARKUP)
        if ahead.starts_lower_case(word) and not asks:
            return None
        if ahead.text[at] != ".":
            return after
        stop, before = classify(self._rules, ahead.text, ahead.start, at)
        if stop is FullStopKind.PLAIN or (
            stop in (FullStopKind.LOOSE, FullStopKind.ENDING) and ahead.lines(end, after)
        ):
            return after
        if stop is FullStopKind.NUMBERED and cites is not None:  # a client may show "max. [8](url)" as "max. 8"
            word = cites + 1
        is_end = ends(self._rules, stop, before, ahead.text[at - 1], ahead.word(word))
        return after if is_end else None

    def _colon(self, at: int, colon: str) -> int | None:
        """Return the end of the sentence if it is an empty lead-in that ends with a colon ("Here is what I found: The
        trail ...")."""
        ahead = self._ahead
        opening = ahead.text[ahead.start : min(at, ahead.start + _OPENING)].lstrip(" \n\t*_>").casefold()
        if not opening.startswith(self._rules.lead_ins) or self._open.at(at - ahead.start):
            return None
        if colon == ":" and not ahead.char(at + 1).isspace():
            return None
        after = ahead.skip_space(at + 1)
        if after == ahead.limit or ahead.lines(at, after):
            return None
        first = ahead.char(after)
        return after if first.isalpha() and not first.islower() else None


def _is_unspaced(ch: str) -> bool:
    """Return whether ``ch`` belongs to a script that has no spaces between sentences: kana, Han, full-width forms."""
    return "\u3040" <= ch <= "\u9fff" or "\uff00" <= ch <= "\uffef"


def _continues_quotation(ch: str) -> bool:
    """Return whether ``ch``, directly after a quotation, continues the sentence because it is the kana of a particle or
    的."""
    return "\u3041" <= ch <= "\u309f" or ch == "的"
