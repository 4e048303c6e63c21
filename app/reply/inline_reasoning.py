"""Handles reasoning that a model writes at the beginning of its text, as ``<think>…</think>`` or
``<thinking>…</thinking>``."""

import re
from collections.abc import Sequence
from enum import Enum, auto

from msgspec import Struct
from msgspec.structs import replace

from app.protocols.common.stream_events import Frame, TextDelta
from app.reply.text_buffer import TextBuffer

_TAGS = ("<think>", "<thinking>")
_OPEN = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_SPACE = re.compile(r"\s+")
_CLOSE = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_MOST_SPACE = 256
"""The maximum number of whitespace characters before the first tag."""
_LONGEST = len("</thinking>")
_MARKUP = re.compile(r"<[^<>]*>|\[[^\[\]]*\]")
"""Matches a tag or a citation marker, which don't count as an answer."""
_CLOSE_BEGUN = re.compile(r"<[a-z/]{0,10}\Z", re.IGNORECASE)


class PieceKind(Enum):
    """The kind of a piece of text: a tag around reasoning (with the whitespace after it), reasoning, or the answer."""

    TAG = auto()
    REASONING = auto()
    ANSWER = auto()


class Piece(Struct, frozen=True):
    kind: PieceKind
    deltas: Sequence[TextDelta]

    @property
    def length(self) -> int:
        return sum(len(delta.text) for delta in self.deltas)


def blank_reasoning(text: str) -> str:
    """Return ``text`` with reasoning and its tags replaced with line breaks, so that the answer keeps its position. If
    there is no answer, ``text`` is returned unchanged, because reasoning must be followed by an answer. An answer
    contains a letter or digit outside tags and citation markers."""
    split = InlineReasoning()
    pieces = [*split.take(TextDelta(choice=0, text=text, frame=Frame(json={}))), *split.flush()] if text else []
    answer = "".join(map(blanked, pieces))
    return answer if any(map(str.isalnum, _MARKUP.sub("", answer))) else text


def blanked(piece: Piece) -> str:
    """Return the text of an answer, or line breaks for a piece of any other kind."""
    if piece.kind is not PieceKind.ANSWER:
        return "\n" * piece.length
    return "".join(delta.text for delta in piece.deltas)


class InlineReasoning:
    """Separates reasoning from the answer, however the text is split into parts. There may be several blocks of
    reasoning in a row.

    Whitespace after a block belongs to the block. A block that is never closed includes the rest of the text. Once the
    answer has begun (``over``), all remaining text is the answer.
    """

    def __init__(self) -> None:
        self.over = False
        self._held = TextBuffer()
        self._text = ""
        self._at = 0
        """The position in ``_text`` of the first character whose kind isn't known yet."""
        self._choice = 0
        self._inside = self._found = False

    @property
    def pending(self) -> bool:
        """Whether there is text whose kind isn't known yet."""
        return bool(self._text)

    def take(self, delta: TextDelta) -> list[Piece]:
        """Take the next part of the text. Return the pieces whose kind is now known, in order."""
        self._choice = delta.choice
        self._held.add(delta)
        self._text += delta.text
        pieces: list[Piece] = []
        while self._at < len(self._text) and (known := self._inner() if self._inside else self._outer()):
            pieces.append(self._cut(*known))
        self._text, self._at = self._text[self._at :], 0
        return [piece for piece in pieces if piece.deltas]

    def flush(self) -> list[Piece]:
        """Handle a pause in the text. Return the pending text as a single piece, with the kind of its beginning."""
        if not self._text:
            return []
        self.over = not self._inside
        piece = self._cut(PieceKind.REASONING if self._inside else PieceKind.ANSWER, len(self._text))
        self._text, self._at = "", 0
        return [piece]

    def _outer(self) -> tuple[PieceKind, int] | None:
        """Return the kind and the end of the next piece outside reasoning, or None if more text is needed."""
        space = _SPACE.match(self._text, self._at)
        if space is not None and self._found:
            return PieceKind.TAG, space.end()
        start = space.end() if space is not None else self._at
        if opened := _OPEN.match(self._text, start):
            self._inside = self._found = True
            return PieceKind.TAG, opened.end()
        begun = self._text[start : start + _LONGEST].lower()
        if start - self._at < _MOST_SPACE and any(tag.startswith(begun) for tag in _TAGS):
            return None
        self.over = True
        return PieceKind.ANSWER, len(self._text)

    def _inner(self) -> tuple[PieceKind, int] | None:
        """Return the kind and the end of the next piece of reasoning or of its closing tag, or None if more text is
        needed."""
        closed = _CLOSE.search(self._text, self._at)
        if closed is not None and closed.start() == self._at:
            self._inside = False
            return PieceKind.TAG, closed.end()
        end = closed or _CLOSE_BEGUN.search(self._text, max(self._at, len(self._text) - _LONGEST))
        at = end.start() if end is not None else len(self._text)
        return (PieceKind.REASONING, at) if at > self._at else None

    def _cut(self, kind: PieceKind, end: int) -> Piece:
        slices = self._held.cut(self._held.taken + end - self._at if end < len(self._text) else None)
        self._at = end
        deltas = [
            TextDelta(choice=self._choice, text=piece.text, frame=replace(piece.frame, tokens=piece.tokens or None))
            for piece in slices
        ]
        return Piece(kind, deltas)
