"""Splits text into sentences as it arrives.

The text is scanned once. Every decision depends only on the text, not on how it is divided into deltas: a decision that
needs more text than has arrived is postponed (``MoreTextNeeded``). Look-ahead and sentence length are bounded, so the
work per character is constant.
"""

import re
from collections.abc import Sequence

from judges.sentences.blocks import BlockStructure, Line
from judges.sentences.boundaries import CHARACTERS, MARKS, BoundaryDetector
from judges.sentences.lookahead import LINE_ENDS, LineKind, Lookahead, MoreTextNeeded
from judges.text.languages.rules import LANGUAGES, split_rules
from judges.text.markdown import plain, plain_code
from judges.types import BlockMarks, Sentence, Span

_POINTS = re.compile("[" + re.escape("".join(MARKS) + CHARACTERS) + ":：" + LINE_ENDS + "]")
_LINE_POINTS = re.compile(f"[{LINE_ENDS}]")
_LAST_SPACE = re.compile(r"\s\S*\Z")
_HAS_END = re.compile(
    "["
    + re.escape("".join(MARKS))
    + r"](?:[\"'”’»“*_~)\]}）】」』¹²³⁰⁴⁵⁶⁷⁸⁹\s]|\[[^\[\]]{1,60}\]|【[^【】]{1,60}】){0,16}\Z"
)
_TAIL = 1000
_MAX_INDENT = 200


class IncrementalSplitter:
    """Splits one reply that arrives in deltas. Implements ``judges.protocols.SentenceSplitter``.

    Raises ValueError if ``max_chars`` is less than 1 or a language has no table.

    Args:
        max_chars: maximum length of a sentence in characters. A longer sentence is cut at whitespace (code at the end
            of a line), or within a word if there is no whitespace.
        languages: codes of the abbreviation tables to use.
        markdown: whether the text is Markdown. Otherwise, clients may show block marks and fences as text.
        begins_line: whether the text begins a line. Otherwise, it continues the line of another text.
    """

    def __init__(
        self,
        *,
        max_chars: int = 4000,
        languages: Sequence[str] = LANGUAGES,
        markdown: bool = True,
        begins_line: bool = True,
    ) -> None:
        if max_chars < 1:
            raise ValueError(f"max_chars must be at least 1, not {max_chars}")
        self._max_chars = max_chars
        self._ahead = Lookahead(max_chars)
        self._blocks = BlockStructure(self._ahead, markdown=markdown)
        self._boundaries = BoundaryDetector(self._ahead, split_rules(tuple(languages)), self._blocks)
        self._index = 0
        self._offset = 0  # position of the buffered text in the reply
        self._at = 0  # how far the buffered text has been scanned
        self._block: LineKind | None = None
        self._line = Line(LineKind.TEXT)
        self._on_new_line = begins_line
        self._gap = ""  # whitespace at the end of the preceding sentence

    def push(self, text: str) -> Sequence[Sentence]:
        """Add a delta. Return the sentences that are now complete. Raises RuntimeError after ``flush``."""
        if self._ahead.ended:
            raise RuntimeError("push after flush: use a new splitter for each text")
        self._ahead.text += text
        return self._take()

    def flush(self, *, truncated: bool = False) -> Sequence[Sentence]:
        """End the text and return its remaining sentences. ``truncated`` means that the text was cut off, so a last
        sentence without an end mark is not ``complete``."""
        self._ahead.ended = True
        sentences = self._take()
        end = len(self._ahead.text)
        if self._ahead.start < end:
            has_end = _HAS_END.search(self._ahead.text, max(self._ahead.start, end - _TAIL))
            sentences.append(self._emit(end, complete=not truncated or has_end is not None))
        return sentences

    def pause(self) -> Sequence[Sentence]:
        """End the current sentence and line here, and return the text that has arrived. More text may follow."""
        sentences = self.flush()
        arrived = len(self._ahead.text)
        self._ahead.drop(arrived)
        self._offset += arrived
        self._at = 0
        self._block, self._on_new_line, self._gap = None, True, ""
        self._boundaries.reset()
        self._blocks.reset()
        self._ahead.ended = False
        return sentences

    def restart(self, index: int) -> None:
        """Do nothing, because no earlier sentence is remembered after ``pause``."""

    def _take(self) -> list[Sentence]:
        sentences: list[Sentence] = []
        try:
            while (end := self._next_end()) is not None:
                sentences.append(self._emit(end))
                self._resume(end)
        except MoreTextNeeded:
            pass
        if done := min(self._ahead.start, self._at):
            self._ahead.drop(done)
            self._blocks.drop(done)
            self._offset += done
            self._at -= done
        return sentences

    def _next_end(self) -> int | None:
        """Scan to the end of the open sentence. Return None if the text is exhausted. Raises MoreTextNeeded."""
        if self._block is None:
            self._begin()
        if self._block is LineKind.DEFINITION:
            return self._ahead.skip_space(self._at + 1)
        points = _POINTS if self._block in (LineKind.TEXT, LineKind.ITEM) else _LINE_POINTS
        limit = self._ahead.limit
        while self._at < limit:
            found = points.search(self._ahead.text, self._at, limit)
            self._at = found.start() if found else min(len(self._ahead.text), limit)
            if found:
                if (end := self._decide(self._at)) is not None:
                    return end
                self._at += 1
            elif self._at < limit:
                return None
        return self._cut(limit) if self._ahead.char(limit) else None

    def _begin(self) -> None:
        start = self._ahead.start
        first = self._ahead.skip_space(start)
        line = Line(LineKind.TEXT, BlockMarks.TEXT)
        if self._on_new_line or self._ahead.lines(start, first):
            line = self._blocks.line(self._gap + self._ahead.text[start:first], first)
        elif self._index == 0:
            line = self._blocks.rest_of_line(first)
        block = line.kind
        if line.marks is not BlockMarks.CODE and block in (LineKind.TEXT, LineKind.ITEM):
            block, first = self._definition(block, first)
        self._block, self._line = block, line
        self._at = max(self._at, first)

    def _definition(self, block: LineKind, first: int) -> tuple[LineKind, int]:
        """Return the kind of block, and the position of its last character if it is a link definition."""
        end = self._ahead.definition(first)
        return (LineKind.DEFINITION, end - 1) if end else (block, first)

    def _decide(self, at: int) -> int | None:
        match self._block:
            case LineKind.FENCE:
                return self._boundaries.fence(at, self._line.fence, self._line.column)
            case LineKind.LINE:
                return self._boundaries.line(at)
            case _:
                return self._boundaries.decide(at)

    def _cut(self, limit: int) -> int:
        """Return the position, in the second half of the sentence, at which to cut a sentence that reaches ``limit``
        without an end."""
        text, half = self._ahead.text, self._ahead.start + self._max_chars // 2
        if self._block is LineKind.FENCE and (line := text.rfind("\n", half, limit) + 1):
            return line
        space = _LAST_SPACE.search(text[half:limit])
        return half + space.start() + 1 if space else limit

    def _emit(self, end: int, *, complete: bool = True) -> Sentence:
        start = self._ahead.start
        text = self._ahead.text[start:end]
        in_code = self._block is LineKind.FENCE
        sentence = Sentence(
            index=self._index,
            text=text,
            span=Span(self._offset + start, self._offset + end),
            plain=plain_code(text) if in_code else plain(text, self._line.marks),
            in_code=in_code,
            complete=complete,
            marks=self._line.marks,
        )
        self._index += 1
        last = start + len(text.rstrip())
        self._on_new_line = self._ahead.lines(last, end) > 0
        self._gap = _shortened(self._ahead.text[last:end] if text.strip() else self._gap + text)
        self._ahead.start = end
        return sentence

    def _resume(self, end: int) -> None:
        """Continue after a sentence. A sentence that is cut because of its length has already been scanned beyond the
        cut."""
        self._boundaries.reset()
        if self._at < end:
            self._at = end
            self._block = None
        elif self._block is LineKind.FENCE:
            self._at = end - 1  # so that the first line after the cut is recognised


def _shortened(gap: str) -> str:
    """Return whitespace with the same meaning as ``gap``, but at most one blank line and a limited indentation."""
    line = max(gap.rfind("\n"), gap.rfind("\r")) + 1
    is_blank = gap.count("\n", 0, line) > 1 or gap.count("\r", 0, line) > 1 + gap.count("\n", 0, line)
    return ("\n\n" if is_blank else gap[max(0, line - 2) : line]) + gap[line : line + _MAX_INDENT]
