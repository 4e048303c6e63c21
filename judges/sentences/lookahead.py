"""Text that still arrives, read ahead: what is not there yet is an exception, so that no decision can rest on it."""

from enum import Enum, auto

from judges.text.markdown import CITATION

LINE_ENDS = "\n\u2028\u2029"
_BULLETS = frozenset("-*+•◦‣▪–—")
_MAX_INFO = 80
_MAX_CITATION = 72
_MAX_URL = 300
_MAX_WORD = 24
_MAX_RUN = 64


class More(Exception):
    """What has arrived does not decide it; more text or the end of it will."""


class Block(Enum):
    """What a line begins."""

    TEXT = auto()
    ITEM = auto()
    LINE = auto()
    """A heading, a table row, a rule: ends with its line."""
    FENCE = auto()


class Lookahead:
    """The text from the open sentence on, which reaches from ``start`` to ``limit`` at most.

    Each method raises ``More`` rather than answer from the end of what has arrived, unless the text has ``ended``.
    """

    def __init__(self, max_chars: int) -> None:
        self.text = ""
        self.ended = False
        self.start = 0
        self._max_chars = max_chars
        self._gap = (0, 0)

    @property
    def limit(self) -> int:
        return self.start + self._max_chars

    def drop(self, count: int) -> None:
        """Forget the first ``count`` characters."""
        self.text = self.text[count:]
        self.start -= count
        self._gap = (self._gap[0] - count, self._gap[1] - count)

    def char(self, at: int) -> str:
        """The character at ``at``; empty past the end of the text."""
        if at < len(self.text):
            return self.text[at]
        if self.ended:
            return ""
        raise More

    def lines(self, start: int, end: int) -> int:
        """How many line ends there are; a paragraph separator counts as two."""
        return sum(self.text.count(ch, start, end) for ch in LINE_ENDS + LINE_ENDS[-1])

    def skip_space(self, at: int) -> int:
        """The first position from ``at`` on that holds no white space, or the limit."""
        start, end = self._gap if self._gap[0] <= at <= self._gap[1] else (at, at)
        limit, text = self.limit, self.text
        while end < limit and end < len(text) and text[end].isspace():
            end += 1
        self._gap = (start, end)  # a long gap is not walked again for every delta
        if end < limit:
            self.char(end)
        return max(at, min(end, limit))

    def skip(self, at: int, characters: frozenset[str], most: int) -> int:
        """The first position from ``at`` on that holds none of ``characters``, ``most`` characters on at the latest."""
        end = at
        while end - at < most and self.char(end) in characters:
            end += 1
        return end

    def starts_small(self, at: int) -> bool:
        """Whether a word in small letters starts here, and no name such as iPhone or eBay."""
        return self.char(at).islower() and not self.char(at + 1).isupper()

    def run(self, at: int, ch: str, most: int = _MAX_RUN) -> int:
        """How often ``ch`` is repeated from ``at`` on, counting no further than ``most``."""
        count = 0
        while count < most and self.char(at + count) == ch:
            count += 1
        return count

    def word(self, at: int) -> str:
        """The word at ``at``, with its stop if it is a single letter."""
        end = at
        while end - at < _MAX_WORD and self.char(end).isalnum():
            end += 1
        if end - at == 1 and self.char(end) == ".":
            end += 1
        return self.text[at:end]

    def citation(self, at: int) -> int | None:
        """Where the citation marker that opens at ``at`` ends; None if it is none."""
        closers, limit, end = "]】", at + _MAX_CITATION, at + 1
        while end < limit:
            ch = self.char(end)
            if not ch or ch in LINE_ENDS or (ch == "[" and end > at + 1):
                return None
            end += 1
            if ch not in closers:
                continue
            following = self.char(end)
            if ch == "]" and following == "(":
                closers, limit = ")", end + _MAX_URL
            elif following != "]":
                return end if CITATION.fullmatch(self.text, at, end) else None
        return None

    def block(self, at: int) -> tuple[Block, str]:
        """What the line whose first character is ``at`` begins; for a fence also its marker."""
        ch = self.char(at)
        if ch in ("`", "~"):
            run = self.run(at, ch)
            return (Block.FENCE, ch * run) if run >= 3 and self._is_info(at + run, ch) else (Block.TEXT, "")
        if ch == "|" or (ch == "#" and self._is_heading(at)) or (ch in ("-", "_", "=") and self.run(at, ch, 3) == 3):
            return Block.LINE, ""
        if ch == ">" or self._is_item(at, ch):
            return Block.ITEM, ""
        return Block.TEXT, ""

    def _is_heading(self, at: int) -> bool:
        run = self.run(at, "#", 7)
        return run < 7 and (not self.char(at + run) or self.char(at + run).isspace())

    def _is_info(self, at: int, fence: str) -> bool:
        """Whether the rest of the line can be the language of a block: code in the line has its closing marks there."""
        for end in range(at, at + _MAX_INFO):
            ch = self.char(end)
            if not ch or ch in LINE_ENDS:
                return True
            if ch == fence:
                return False
        return True

    def _is_item(self, at: int, ch: str) -> bool:
        if ch in _BULLETS:
            return self._is_blank(at + 1)
        opened = ch == "("
        at += opened
        label = 0
        while label < 3 and self.char(at + label).isdecimal():
            label += 1
        if not label and self.char(at).isascii() and self.char(at).isalpha():
            label = 1
        return (
            bool(label)
            and self.char(at + label) in ((")",) if opened else (".", ")"))
            and self._is_blank(at + label + 1)
        )

    def _is_blank(self, at: int) -> bool:
        return self.char(at) in (" ", "\t")
