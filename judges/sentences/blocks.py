"""Follows the block structure of a Markdown text line by line, as CommonMark defines it: which list items, block quotes
and HTML blocks are open, and whether a paragraph is. Only this decides whether "> " or "1. " at the beginning of a line
is a mark or text. Where clients may differ, it is text."""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from judges.sentences.lookahead import LineKind, Lookahead
from judges.text.fragments import INLINE_TAGS
from judges.types import BlockMarks

_MARK_CHARACTERS = frozenset(" \t>-*+_=.)0123456789")
_BULLETS = frozenset("-*+•◦‣▪–—")
_SIGNS = frozenset("-*+>")
_BLANK = frozenset(" \t")
_MAX_PREFIX = 80
_MAX_DEPTH = 8
_MAX_INDENT = 100
_MAX_RUN = 64
_MAX_INFO = 1000
_MARK = re.compile(r">|(?:[-*+]|(?P<number>\d{1,9})[.)])(?=[ \t\r\n])")
_RULE = re.compile(r"(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})[\r\n]")
_UNDERLINE = re.compile(r"(?:=+|-+)[ \t]*[\r\n]")
_BLANK_LINE = re.compile(r"\n[^\n]*\n|\r[^\n\r]*\r")
_OTHER_SPACE = re.compile(r"[^ \t]")
_INFO_END = re.compile(r"[`\r\n]")
_TAG_STARTS = frozenset("/!?abcdefghijklmnopqrstuvwxyz")
_UNENDING: Final = frozenset(["pre", "script", "style", "textarea"])
"""HTML elements whose block doesn't end at a blank line."""


class BlockContainer(Struct, frozen=True):
    """An open list item or block quote. ``mark`` is its bullet, the character after its number, or ">". The content of
    a list item begins at ``column``."""

    mark: str
    column: int = 0


class Line(Struct, frozen=True):
    """The beginning of a line. ``fence`` is the mark of a code fence in a container whose content begins at ``column``.
    ``continues`` means that the line belongs to the paragraph above, although it looks like a new block."""

    kind: LineKind
    marks: BlockMarks = BlockMarks.MARKUP
    fence: str = ""
    column: int = 0
    continues: bool = False


class _Content(Struct, frozen=True):
    """The beginning of the text after the marks of a line. ``fence`` is the run of backticks or tildes that it begins
    with; it ``opens`` code if the rest of the line may be an info string, and ``closes`` it if the rest is blank."""

    kind: LineKind
    is_heading: bool = False
    tag: str = ""
    fence: str = ""
    opens: bool = False
    closes: bool = False


class _Prefix:
    """The marks at the beginning of ``line``, read from left to right. ``matched`` is the number of containers that
    continue in the line."""

    def __init__(self, line: str, column: int, containers: Sequence[BlockContainer]) -> None:
        self.line = line
        self.place = 0
        self.matched = 0
        self._column = column
        self._base = 0
        for container in containers:
            if not self._continues(container):
                break
            self.matched += 1

    @property
    def base(self) -> int:
        """The column at which the content of the innermost container begins."""
        return self._base

    @property
    def is_indented(self) -> bool:
        """Whether the line is indented so far that nothing in it is a mark."""
        return self._column - self._base > 3

    @property
    def rest_is_blank(self) -> bool:
        return self.line[self.place] in "\r\n"

    @property
    def is_rule(self) -> bool:
        """Whether the rest of the line is a horizontal rule."""
        return _RULE.fullmatch(self.line, self.place) is not None

    @property
    def is_underline(self) -> bool:
        """Whether the rest of the line can mark the line above it as a heading."""
        return _UNDERLINE.fullmatch(self.line, self.place) is not None

    def next_mark(self, *, interrupts: bool) -> re.Match[str] | None:
        """Return the mark that comes next. If it ``interrupts`` a paragraph, it must not be an empty list item or have
        a number other than 1."""
        mark = None if self.is_indented or self.is_rule else _MARK.match(self.line, self.place)
        if mark is None or not interrupts or mark[0] == ">":
            return mark
        is_first = mark["number"] is None or int(mark["number"]) == 1
        return mark if is_first and self.line[mark.end() :].strip() else None

    def take(self, mark: re.Match[str]) -> BlockContainer:
        """Move behind ``mark``. Return the container that it opens."""
        self._move(len(mark[0]))
        if mark[0] == ">":
            return BlockContainer(">")
        after = self._base = self._column
        self._skip_space()
        width = self._column - after
        self._base = after + (width if width <= 4 and not self.rest_is_blank else 1)
        return BlockContainer(mark[0][-1], self._base)

    def _continues(self, container: BlockContainer) -> bool:
        if container.mark != ">":
            self._base = max(self._base, container.column) if self._column >= container.column else self._base
            return self._column >= container.column
        if self.is_indented or self.line[self.place] != ">":
            return False
        self._move(1)
        return True

    def _move(self, length: int) -> None:
        self.place += length
        self._column += length
        if self.line[self.place - 1] == ">":
            self._base = self._column + (self.line[self.place] in _BLANK)
            self._skip_space()

    def _skip_space(self) -> None:
        while self.line[self.place] in _BLANK:
            self._column += 4 - self._column % 4 if self.line[self.place] == "\t" else 1
            self.place += 1


class BlockStructure:
    """The block structure of the text in ``ahead``. Without ``markdown``, nothing is a mark, because the text may be
    shown as it is written.

    The lines must be read in order. A line can be read more than once.
    """

    def __init__(self, ahead: Lookahead, *, markdown: bool = True) -> None:
        self._ahead = ahead
        self._markdown = markdown
        self.reset()

    def reset(self) -> None:
        """Begin a new text."""
        self.lost = not self._markdown
        """Whether the structure can't be followed. Nothing that follows is then a mark."""
        self._open: list[BlockContainer] = []
        self._in_paragraph = False
        self._in_html = False
        self._code: tuple[str, int] | None = None
        """The fence of code that begins in the line of a list item or block quote, and the number of containers."""
        self._empty_item = False
        self._at = -1
        self._last = Line(LineKind.TEXT)

    def drop(self, count: int) -> None:
        """Adjust to ``count`` characters having been dropped at the beginning of the text."""
        self._at -= count

    def line(self, gap: str, at: int) -> Line:
        """Read the line whose first character other than whitespace is at ``at``. ``gap`` is the whitespace before it.
        Raises MoreTextNeeded."""
        if at != self._at:
            self._last = self._read(gap, at)
            self._at = at
        return self._last

    def rest_of_line(self, at: int) -> Line:
        """Read the first line of a text that continues the line of another text. If it would begin code elsewhere, it
        may or may not do so here."""
        line = self.line("", at)
        self.lost = self.lost or bool(line.fence) or self._code is not None
        return Line(LineKind.TEXT, BlockMarks.TEXT)

    def _read(self, gap: str, at: int) -> Line:
        end = self._ahead.skip(at, _MARK_CHARACTERS, _MAX_PREFIX)
        prefix, content = self._ahead.text[at:end] + (self._ahead.char(end) or "\n"), self._content(at, end)
        if _BLANK_LINE.search(gap):
            self._pass_blank_line()
        indent = gap[max(gap.rfind("\n"), gap.rfind("\r")) + 1 :]
        if end - at == _MAX_PREFIX or (content.fence and len(content.fence) == _MAX_RUN):
            self.lost = True
        if self.lost or _OTHER_SPACE.search(indent) or len(indent) > _MAX_INDENT:
            self._in_paragraph = True
            return Line(content.kind, BlockMarks.TEXT)
        read = _Prefix(prefix, len(indent.expandtabs(4)), self._open)
        if self._in_html or self._is_code(read, content):
            return Line(content.kind, BlockMarks.TEXT)
        return self._begin(read, content)

    def _content(self, at: int, end: int) -> _Content:
        ahead = self._ahead
        first, kind = ahead.char(end), self._kind(at)
        if first == "#":
            return _Content(kind, is_heading=self._is_heading(end))
        if first == "<":
            tag = ahead.word(end + 1).lower() or ahead.char(end + 1)
            is_tag = tag[:1] in _TAG_STARTS and ahead.char(end + 1 + len(tag)) != ":"  # otherwise an address
            return _Content(kind, tag=tag if is_tag else "")
        if first not in ("`", "~") or (run := ahead.run(end, first, _MAX_RUN)) < 3:
            return _Content(kind)
        after = ahead.skip(end + run, _BLANK, _MAX_INFO)
        closes = ahead.char(after) in ("", "\r", "\n")
        return _Content(
            kind, fence=first * run, opens=closes or first == "~" or self._is_info(end + run), closes=closes
        )

    def _is_info(self, at: int) -> bool:
        """Return whether the rest of the line can be the info string of a fence. If the backticks open inline code, the
        rest contains the closing ones."""
        end = at + _MAX_INFO
        found = _INFO_END.search(self._ahead.text, at, end)
        if found is None and len(self._ahead.text) < end:
            self._ahead.char(len(self._ahead.text))
            return True
        self.lost = self.lost or found is None
        return found is not None and found[0] != "`"

    def _kind(self, at: int) -> LineKind:
        """Return the kind of block that a line looks like, apart from a fence."""
        ch = self._ahead.char(at)
        if ch == "|" or (ch == "#" and self._is_heading(at)) or (ch in ("-", "_", "=") and self._is_run(at, ch)):
            return LineKind.LINE
        return LineKind.ITEM if ch == ">" or self._is_item(at, ch) else LineKind.TEXT

    def _is_run(self, at: int, ch: str) -> bool:
        return self._ahead.run(at, ch, 3) == 3

    def _is_heading(self, at: int) -> bool:
        run = self._ahead.run(at, "#", 7)
        return run < 7 and (not self._ahead.char(at + run) or self._ahead.char(at + run).isspace())

    def _is_item(self, at: int, ch: str) -> bool:
        char = self._ahead.char
        if ch in _BULLETS:
            return char(at + 1) in _BLANK
        opened = ch == "("
        at += opened
        label = 0
        while label < 3 and char(at + label).isdecimal():
            label += 1
        if not label and char(at).isascii() and char(at).isalpha():
            label = 1
        closers = (")",) if opened else (".", ")")
        return bool(label) and char(at + label) in closers and char(at + label + 1) in _BLANK

    def _pass_blank_line(self) -> None:
        """End the paragraph, the block quotes with their content, an HTML block and an item that has no content."""
        self._in_paragraph = self._in_html = False
        if self._empty_item:
            self._open.pop()
        self._empty_item = False
        marks = [container.mark for container in self._open]
        if ">" in marks:
            del self._open[marks.index(">") :]

    def _is_code(self, read: _Prefix, content: _Content) -> bool:
        """Return whether the line is in code that began in the line of a list item or block quote."""
        if self._code is None:
            return False
        marker, depth = self._code
        inside = read.matched >= depth
        is_end = content.closes and content.fence.startswith(marker) and not read.is_indented
        if not inside or (is_end and read.line[read.place] == marker[0]):
            self._code = None
        return inside

    def _begin(self, read: _Prefix, content: _Content) -> Line:
        """Open the containers that begin in the line, and return its beginning."""
        may_interrupt = self._in_paragraph and read.matched == len(self._open)
        opened: list[BlockContainer] = []
        while mark := read.next_mark(interrupts=may_interrupt and not opened):
            opened.append(read.take(mark))
        if read.place < len(read.line) - 1:
            content = _Content(content.kind)  # the text begins before it
        replaced = self._open[read.matched : read.matched + 1]
        is_sibling = bool(replaced and opened) and replaced[0].mark == opened[0].mark
        continues = self._in_paragraph and not opened
        if not continues or self._ends_paragraph(read, content, is_lazy=not may_interrupt):
            self._open = [*self._open[: read.matched], *opened]
            self._empty_item = bool(opened) and opened[-1].mark != ">" and read.rest_is_blank
            self.lost = self.lost or len(self._open) > _MAX_DEPTH
            return self._content_line(read, content, opened, is_sibling=is_sibling)
        is_mark = read.is_indented or _MARK.match(read.line, read.place) is not None
        kind = content.kind if content.kind is LineKind.ITEM or not is_mark else LineKind.TEXT
        return Line(kind, BlockMarks.TEXT if is_mark else BlockMarks.MARKUP, continues=is_mark)

    def _ends_paragraph(self, read: _Prefix, content: _Content, *, is_lazy: bool) -> bool:
        """Return whether a line without new marks ends the open paragraph. HTML in a line of its own doesn't, if its
        tag may be part of a sentence."""
        if read.is_indented:
            return False
        if content.tag:
            return content.tag not in INLINE_TAGS
        is_rule = read.is_rule or (not is_lazy and read.is_underline)
        return is_rule or content.is_heading or content.opens or read.rest_is_blank

    def _content_line(
        self, read: _Prefix, content: _Content, opened: Sequence[BlockContainer], *, is_sibling: bool
    ) -> Line:
        """Begin the content of the innermost container. Return the beginning of the line."""
        is_underline = self._in_paragraph and not opened and read.is_underline
        is_single = content.is_heading or read.is_rule or is_underline or read.rest_is_blank
        self._in_paragraph = not (is_single or read.is_indented or content.opens)
        if self.lost or (read.is_indented and read.place):
            return Line(content.kind, BlockMarks.TEXT)
        if read.is_indented:
            return Line(LineKind.LINE, BlockMarks.CODE)
        if content.opens and not read.place:
            return Line(LineKind.FENCE, fence=content.fence, column=read.base)
        if content.opens:
            self._code = content.fence, len(self._open)
        self._in_html = bool(content.tag)
        self.lost = content.tag in _UNENDING
        is_sign = bool(opened) and opened[-1].mark in _SIGNS and not is_sibling
        return Line(content.kind, BlockMarks.SIGNS if is_sign else BlockMarks.MARKUP)
