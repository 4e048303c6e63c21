"""Decides where a sentence ends, by each character that may end one and the text after it."""

from judges.sentences.brackets import Enclosures, closer_of
from judges.sentences.full_stops import FullStopKind, classify, ends
from judges.sentences.lookahead import LINE_ENDS, LineKind, Lookahead
from judges.text.languages.rules import SplitRules

HARD = frozenset("。！？｡⁇⁈⁉‼؟۔।॥։።፧။៕")
"""End marks that do not need white space after them."""
MARKS = HARD | frozenset(".!?…")
_AFTER_MARK = frozenset("\"'”’»*_~¹²³⁰⁴⁵⁶⁷⁸⁹")
_CITES = frozenset("[【")
_COLONS = frozenset(":：")
_MARKUP = frozenset("*_~\"'“„‘‚«»([{¿¡")
_INDENT = frozenset(" \t>")
_BLANK = frozenset(" ")
_OPEN_ENDED = frozenset(".!?…,;&+/–-，、；")
"""Before a line feed: the sentence continues, or its full stop was found not to end it."""
_MAX_CLOSERS = 16
_MAX_MARKUP = 6
_MAX_FENCE_SPACE = 8
_OPENING = 40
_LINE = 48


class BoundaryDetector:
    """Decides, for each character at which the sentence in ``ahead`` may end, whether and where it does.

    Every method takes a position and returns the end of the sentence, including the white space after it, or None. If
    that is not certain yet, it raises MoreTextNeeded and leaves the state unchanged.
    """

    def __init__(self, ahead: Lookahead, rules: SplitRules) -> None:
        self._ahead = ahead
        self._rules = rules
        self._open = Enclosures()

    def reset(self) -> None:
        """A new sentence begins: no bracket or quotation is open."""
        self._open.clear()

    def decide(self, at: int) -> int | None:
        """In running text."""
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
        """At the end of a line that is a block by itself."""
        return self._ahead.skip_space(at)

    def fence(self, at: int, marker: str) -> int | None:
        """At the end of a line in a code block: the end of the block, if the next line closes it."""
        ahead = self._ahead
        line = ahead.skip(at + 1, _INDENT, _MAX_FENCE_SPACE)
        run = ahead.run(line, marker[0])
        if run < len(marker):
            return None
        end = ahead.skip(line + run, _BLANK, _MAX_FENCE_SPACE)
        if end >= ahead.limit or ahead.char(end) not in ("\r", *LINE_ENDS):
            return None
        return ahead.skip_space(end)

    def _line_end(self, at: int) -> int | None:
        ahead = self._ahead
        after = ahead.skip_space(at)
        if after == ahead.limit:
            return after
        if not ahead.char(after):
            return None
        if ahead.lines(at, after) > 1 or ahead.block(after)[0] is not LineKind.TEXT:
            return after
        continues = self._open.at(at - ahead.start) or self._line_continues(at, after)
        return None if continues else after

    def _line_continues(self, at: int, after: int) -> bool:
        line = self._ahead.text[max(self._ahead.start, at - _LINE) : at].rstrip()
        if line[-1:] in _COLONS:
            return False
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
            if (closer := closer_of(ch)) in enclosed:
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
        """The end of the sentence if the mark at ``at``, with its closing marks up to ``end``, ends it."""
        ahead = self._ahead
        after = ahead.skip_space(end)
        if after < ahead.limit and after - end <= 2 and ahead.char(after) in _CITES and not ahead.lines(end, after):
            cited = ahead.citation(after)
            if cited is not None and cited < ahead.limit and (not ahead.char(cited) or ahead.char(cited).isspace()):
                end, after = cited, ahead.skip_space(cited)
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
        is_end = ends(self._rules, stop, before, ahead.text[at - 1], ahead.word(word))
        return after if is_end else None

    def _colon(self, at: int, colon: str) -> int | None:
        """A colon ends an empty lead-in ("Here is what I found: The trail ...")."""
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
    """Whether ``ch`` is from a script without spaces between sentences: kana, Han, full-width forms."""
    return "\u3040" <= ch <= "\u9fff" or "\uff00" <= ch <= "\uffef"


def _continues_quotation(ch: str) -> bool:
    """Whether ``ch``, directly after a quotation, continues the sentence: kana of a particle, or 的."""
    return "\u3041" <= ch <= "\u309f" or ch == "的"
