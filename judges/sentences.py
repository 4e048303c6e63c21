"""Sentences of text that still arrives.

The text is scanned once. Every decision looks only at the text itself, and one that would have to look beyond what has
arrived is put off (``More``) and made again when there is more; so the cuts between deltas cannot matter. Look-ahead is
bounded, and so is the length of a sentence: the work per character is constant.
"""

import re
from collections.abc import Sequence

from judges.enclosures import CHARACTERS, Enclosures, closer_of
from judges.language import LANGUAGES, split_rules
from judges.language.stops import Stop, classify, ends
from judges.lookahead import LINE_ENDS, Block, Lookahead, More
from judges.markdown import plain, plain_code
from judges.types import Sentence, Span

_HARD = frozenset("。！？｡⁇⁈⁉‼؟۔।॥։።፧။៕")
"""End marks that need no white space after them."""
_MARKS = _HARD | frozenset(".!?…")
_AFTER_MARK = frozenset("\"'”’»*_~¹²³⁰⁴⁵⁶⁷⁸⁹")
_CITES = frozenset("[【")
_SILENT = frozenset("*_~\"'“„‘‚«»([{¿¡")
_OPEN_ENDED = frozenset(".!?…,;&+/–-，、；")
"""Before a line feed: the line goes on, or its full stop has been found to be none."""
_MAX_CLOSERS = 16
_MAX_SILENT = 6
_MAX_FENCE_SPACE = 8
_POINTS = re.compile("[" + re.escape("".join(_MARKS) + CHARACTERS) + ":：" + LINE_ENDS + "]")
_LINE_POINTS = re.compile(f"[{LINE_ENDS}]")
_LAST_SPACE = re.compile(r"\s\S*\Z")
_HAS_END = re.compile(
    r"[.!?…。！？｡⁇⁈⁉‼؟۔।॥։።፧။៕](?:[\"'”’»“*_~)\]}）】」』》¹²³⁰⁴⁵⁶⁷⁸⁹\s]|\[[^\[\]]{1,60}\]|【[^】]{1,60}】){0,16}\Z"
)


class IncrementalSplitter:
    """Splits one reply that arrives in deltas; implements ``judges.base.SentenceSplitter``.

    ``max_chars`` bounds a sentence in characters: a longer one is cut at white space (code: at the end of a line) or,
    where there is none, in the middle of a word. ``languages`` names the tables of abbreviations to use. Raises
    ValueError if ``max_chars`` is less than 1 or a language has no table.
    """

    def __init__(self, *, max_chars: int = 4000, languages: Sequence[str] = LANGUAGES) -> None:
        if max_chars < 1:
            raise ValueError(f"max_chars must be at least 1, not {max_chars}")
        self._max_chars = max_chars
        self._rules = split_rules(tuple(languages))
        self._ahead = Lookahead()
        self._open = Enclosures()
        self._index = 0
        # Positions in the text held: the open sentence starts at _start, and is scanned up to _at.
        self._offset = 0
        self._start = 0
        self._at = 0
        self._block: Block | None = None
        self._fence = ""
        self._on_new_line = True

    def push(self, text: str) -> Sequence[Sentence]:
        """Take a delta; return the sentences whose end is now certain. Raises RuntimeError after ``flush``."""
        if self._ahead.ended:
            raise RuntimeError("push after flush: a splitter serves one text")
        self._ahead.text += text
        return self._take()

    def flush(self, *, truncated: bool = False) -> Sequence[Sentence]:
        """The text has ended; return the rest. ``truncated``: it was cut off, so that a last sentence without an end
        mark is not ``complete``."""
        self._ahead.ended = True
        sentences = self._take()
        rest = self._ahead.text[self._start :]
        if rest:
            sentences.append(
                self._emit(self._start + len(rest), complete=not truncated or bool(_HAS_END.search(rest[-200:])))
            )
            self._drop(self._start)
        return sentences

    def _take(self) -> list[Sentence]:
        sentences: list[Sentence] = []
        try:
            while (end := self._next_end()) is not None:
                sentences.append(self._emit(end))
                self._resume(end)
        except More:
            pass
        self._drop(min(self._start, self._at))
        return sentences

    def _emit(self, end: int, *, complete: bool = True) -> Sentence:
        text = self._ahead.text[self._start : end]
        in_code = self._block is Block.FENCE
        sentence = Sentence(
            index=self._index,
            text=text,
            span=Span(self._offset + self._start, self._offset + end),
            plain=plain_code(text) if in_code else plain(text),
            in_code=in_code,
            complete=complete,
        )
        self._index += 1
        self._on_new_line = self._ahead.lines(self._start + len(text.rstrip()), end) > 0
        self._start = end
        return sentence

    def _resume(self, end: int) -> None:
        """Go on behind a sentence. One that was cut for its length was scanned further than it reaches."""
        self._open.clear()
        if self._at < end:
            self._at = end
            self._block = None
        elif self._block is Block.FENCE:
            self._at = end - 1  # so that the first line after the cut is seen to begin

    def _drop(self, count: int) -> None:
        self._ahead.drop(count)
        self._offset += count
        self._start -= count
        self._at -= count

    # -- scanning -----------------------------------------------------------------------------------------------------

    @property
    def _limit(self) -> int:
        return self._start + self._max_chars

    def _next_end(self) -> int | None:
        """Scan on to the end of the open sentence; None if the text is exhausted. Raises More."""
        if self._block is None:
            self._begin()
        points = _POINTS if self._block in (Block.TEXT, Block.ITEM) else _LINE_POINTS
        limit = self._limit
        while self._at < limit:
            found = points.search(self._ahead.text, self._at, limit)
            self._at = found.start() if found else min(len(self._ahead.text), limit)
            if found:
                end = self._decide(self._at)
                if end is not None:
                    return end
                self._at = max(self._at, found.end())
            elif self._at < limit:
                return None
        return self._cut(limit) if self._ahead.char(limit) else None

    def _begin(self) -> None:
        first = self._ahead.skip_space(self._start, self._limit)
        if self._on_new_line or self._ahead.lines(self._start, first):
            self._block, self._fence = self._ahead.block(first)
        else:
            self._block = Block.TEXT
        self._at = max(self._at, first)

    def _cut(self, limit: int) -> int:
        """Where a unit that reaches ``limit`` without an end is cut, in its second half."""
        half = self._start + self._max_chars // 2
        end = self._ahead.text.rfind("\n", half, limit) + 1 if self._block is Block.FENCE else 0
        if end:
            return end
        space = _LAST_SPACE.search(self._ahead.text[half:limit])
        return half + space.start() + 1 if space else limit

    def _decide(self, at: int) -> int | None:
        """Where the sentence ends, if what stands at ``at`` ends it."""
        ch = self._ahead.text[at]
        if self._block is Block.FENCE:
            return self._fence_line(at)
        if ch in LINE_ENDS:
            return self._line_end(at)
        if ch in _MARKS:
            return self._mark(at, ch)
        if ch in ":：":
            return self._colon(at, ch)
        self._at = at + self._open.take(self._ahead, at, self._start)
        return None

    def _fence_line(self, at: int) -> int | None:
        """The end of the block, if the line after the line feed ``at`` closes it."""
        ahead, line = self._ahead, at + 1
        while line - at <= _MAX_FENCE_SPACE and ahead.char(line) in (" ", "\t", ">"):
            line += 1
        run = ahead.run(line, self._fence[0])
        if run < len(self._fence):
            return None
        line += run
        line += ahead.run(line, " ", _MAX_FENCE_SPACE)
        if line >= self._limit or ahead.char(line) not in ("\r", *LINE_ENDS):
            return None
        return ahead.skip_space(line, self._limit)

    def _line_end(self, at: int) -> int | None:
        after = self._ahead.skip_space(at, self._limit)
        following = self._ahead.char(after) if after < self._limit else ""
        if after == self._limit or self._block is Block.LINE:
            return after
        if not following:
            return None
        if self._ahead.lines(at, after) > 1 or self._ahead.block(after)[0] is not Block.TEXT:
            return after
        if self._open.at(at - self._start) or self._line_goes_on(at, after):
            self._at = after
            return None
        return after

    def _line_goes_on(self, at: int, after: int) -> bool:
        line = self._ahead.text[max(self._start, at - 48) : at].rstrip()
        if line.endswith((":", "：")):
            return False
        words = line.split()
        return (
            self._is_small(after)
            or line[-1:] in _OPEN_ENDED
            or (bool(words) and words[-1].casefold() in self._rules.dangling)
        )

    def _mark(self, at: int, mark: str) -> int | None:
        ahead = self._ahead
        if ahead.char(at + 1) in _MARKS:  # the last of a run decides
            return None
        end, closed, enclosed = self._past_closers(at + 1)
        if end > self._limit or enclosed:
            return None
        following = ahead.char(end)
        if mark in _HARD or (mark in "!?" and _is_unspaced(following)):
            goes_on = not following or (closed and _continues_quotation(following))
            return None if goes_on else ahead.skip_space(end, self._limit)
        return self._soft_end(at, end, asks=mark == "?" and not closed) if following.isspace() else None

    def _past_closers(self, at: int) -> tuple[int, bool, list[str]]:
        """Past what belongs to the sentence behind its mark: where it ends, whether a quotation or bracket was closed,
        and what is still open."""
        ahead, enclosed, closed = self._ahead, self._open.at(at - self._start), False
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
        """Where the sentence ends if the mark ``at``, with its closers up to the white space ``end``, ends it."""
        ahead = self._ahead
        after = ahead.skip_space(end, self._limit)
        if after < self._limit and after - end <= 2 and ahead.char(after) in _CITES and not ahead.lines(end, after):
            cited = ahead.citation(after)
            if cited is not None and cited < self._limit and (not ahead.char(cited) or ahead.char(cited).isspace()):
                end, after = cited, ahead.skip_space(cited, self._limit)
        if after == self._limit or (ahead.char(after) and ahead.lines(end, after) > 1):
            return after
        if not ahead.char(after) or ahead.char(after) in _MARKS:
            return None
        word = self._past_silent(after)
        if self._is_small(word) and not asks:
            return None
        if ahead.text[at] != ".":
            return after
        stop, before = classify(self._rules, ahead.text, self._start, at)
        if stop is Stop.PLAIN or (stop in (Stop.LOOSE, Stop.ENDING) and ahead.lines(end, after)):
            return after
        is_end = ends(self._rules, stop, before, ahead.text[at - 1], ahead.word(word))
        return after if is_end else None

    def _colon(self, at: int, colon: str) -> int | None:
        """A colon ends a lead-in that says nothing ("Here is what I found: The trail ...")."""
        ahead = self._ahead
        opening = ahead.text[self._start : self._start + 40].lstrip(" \n\t*_>").casefold()
        if not opening.startswith(self._rules.lead_ins) or self._open.at(at - self._start):
            return None
        if colon == ":" and not ahead.char(at + 1).isspace():
            return None
        after = ahead.skip_space(at + 1, self._limit)
        if after == self._limit or ahead.lines(at, after):
            return None
        first = ahead.char(after)
        return after if first.isalpha() and not first.islower() else None

    def _past_silent(self, at: int) -> int:
        """Past quotation marks, brackets and emphasis, to what decides whether a sentence starts here."""
        end = at
        while end - at < _MAX_SILENT and self._ahead.char(end) in _SILENT:
            end += 1
        return end

    def _is_small(self, at: int) -> bool:
        """Whether a small letter starts here that is no name's (iPhone, eBay)."""
        return self._ahead.char(at).islower() and not self._ahead.char(at + 1).isupper()


def _is_unspaced(ch: str) -> bool:
    """Whether ``ch`` is of a script that writes no space between sentences: kana, Han, full-width forms."""
    return "\u3040" <= ch <= "\u9fff" or "\uff00" <= ch <= "\uffef"


def _continues_quotation(ch: str) -> bool:
    """Whether ``ch``, right behind a quotation, makes it a part of the sentence: kana of a particle, or 的."""
    return "\u3041" <= ch <= "\u309f" or ch == "的"
