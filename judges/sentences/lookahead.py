"""Reads ahead in text that is still arriving. Reading beyond its current end raises an exception, so no decision
depends on how much text has arrived."""

from enum import Enum, auto

from judges.text.link_patterns import LINK_DEFINITION, OPEN_LINK_DEFINITION
from judges.text.marker_positions import CITATION

LINE_ENDS = "\n\u2028\u2029"
_MAX_CITATION = 72
_MAX_URL = 300
_MAX_WORD = 24
_MAX_RUN = 64


class MoreTextNeeded(Exception):
    """The text so far is not enough for a decision. Either more text or the end of the text is needed."""


class LineKind(Enum):
    """The kind of block that begins with a line."""

    TEXT = auto()
    ITEM = auto()
    LINE = auto()
    """A heading, table row or rule. Each ends with its line."""
    FENCE = auto()
    DEFINITION = auto()
    """A link definition, which may have several lines."""


class Lookahead:
    """The text from the beginning of the open sentence, which begins at ``start`` and extends to ``limit`` at most.

    Each method raises ``MoreTextNeeded`` if its result depends on text that has not arrived, unless the text has
    ``ended``.
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
        """Drop the first ``count`` characters."""
        self.text = self.text[count:]
        self.start -= count
        self._gap = (self._gap[0] - count, self._gap[1] - count)

    def char(self, at: int) -> str:
        """Return the character at ``at``; "" after the end of the text."""
        if at < len(self.text):
            return self.text[at]
        if self.ended:
            return ""
        raise MoreTextNeeded

    def lines(self, start: int, end: int) -> int:
        """Return the number of line ends; a paragraph separator counts as two."""
        gap = self.text[start:end]
        return 0 if gap.isprintable() else sum(map(gap.count, LINE_ENDS + LINE_ENDS[-1]))

    def skip_space(self, at: int) -> int:
        """Return the position of the first character at or after ``at`` that isn't whitespace, or the limit."""
        start, end = self._gap if self._gap[0] <= at <= self._gap[1] else (at, at)
        limit, text = self.limit, self.text
        while end < limit and end < len(text) and text[end].isspace():
            end += 1
        self._gap = (start, end)  # so that a long gap isn't scanned again for every delta
        if end < limit:
            self.char(end)
        return max(at, min(end, limit))

    def skip(self, at: int, characters: frozenset[str], most: int) -> int:
        """Skip ``characters`` from ``at`` on, but no more than ``most`` of them. Return the position after them."""
        end = at
        while end - at < most and self.char(end) in characters:
            end += 1
        return end

    def starts_lower_case(self, at: int) -> bool:
        """Return whether a lower-case word starts here. Names such as iPhone or eBay don't count."""
        return self.char(at).islower() and not self.char(at + 1).isupper()

    def run(self, at: int, ch: str, most: int = _MAX_RUN) -> int:
        """Return how often ``ch`` occurs in a row from ``at``, up to ``most``."""
        count = 0
        while count < most and self.char(at + count) == ch:
            count += 1
        return count

    def word(self, at: int) -> str:
        """Return the word at ``at``, with its full stop if it is a single letter."""
        end = at
        while end - at < _MAX_WORD and self.char(end).isalnum():
            end += 1
        if end - at == 1 and self.char(end) == ".":
            end += 1
        return self.text[at:end]

    def citation(self, at: int) -> int | None:
        """Return the end of the citation marker that opens at ``at``, or None if it is not a citation marker."""
        closers, limit, end, label = "]】", at + _MAX_CITATION, at + 1, 0
        while end < limit:
            ch = self.char(end)
            if not ch or ch in LINE_ENDS or (ch == "[" and end > at + 1):
                return None
            end += 1
            if ch not in closers:
                continue
            following = self.char(end)
            if ch == "]" and following == "(":
                closers, limit, label = ")", end + _MAX_URL, end
            elif following != "]":
                return end if CITATION.fullmatch(self.text, at, label or end) else None
        return None

    def definition(self, at: int) -> int | None:
        """Return the end of the link definition that begins in the line at ``at``, or None if none does."""
        self.char(at)
        known = OPEN_LINK_DEFINITION.match(self.text, at, self.limit)
        if known and known.end() == len(self.text) < self.limit and not self.ended:
            raise MoreTextNeeded
        return found.end() if (found := LINK_DEFINITION.match(self.text, at, self.limit)) else None
