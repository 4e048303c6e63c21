"""Text that has come and not yet left, with the frames it came in and the log-probabilities that belong to it."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.protocols.common.stream_events import Frame, TextDelta, TextSlice


class TextBuffer:
    """A queue of text. ``add`` puts a piece at its end, ``cut`` takes what comes first; ``taken`` is what has left."""

    def __init__(self, taken: int = 0) -> None:
        self.taken = taken
        self._pieces: deque[_BufferedText] = deque()

    @property
    def rest(self) -> str:
        return "".join(piece.rest for piece in self._pieces)

    def add(self, part: TextDelta) -> None:
        self._pieces.append(_BufferedText.of(part))

    def cut(self, end: int | None = None) -> Sequence[TextSlice]:
        """Take the text up to ``end`` of the reply (all of it by default), as slices of the frames it came in."""
        slices: list[TextSlice] = []
        while self._pieces and (end is None or self.taken < end):
            piece = self._pieces[0]
            if not piece.rest:  # log-probabilities alone, of a character that comes in several tokens
                slices.append(TextSlice(frame=piece.frame, text="", tokens=piece.frame.tokens or ()))
                self._pieces.popleft()
                continue
            taken = piece.take(len(piece.rest) if end is None else end - self.taken)
            slices.append(taken)
            self.taken += len(taken.text)
            if piece.taken == piece.length:
                self._pieces.popleft()
        return slices


class _BufferedText(Struct):
    """Text of a frame that has not left yet, and its log-probability entries, each with where it begins and ends."""

    frame: Frame
    rest: str
    length: int
    tokens: deque[tuple[int, int, Mapping[str, Any]]] | None = None
    taken: int = 0

    @classmethod
    def of(cls, part: TextDelta) -> "_BufferedText":
        if not part.frame.tokens:
            return cls(part.frame, part.text, len(part.text))
        tokens: deque[tuple[int, int, Mapping[str, Any]]] = deque()
        end = 0
        for token in part.frame.tokens:
            start, end = end, end + len(str(token.get("token", "")))
            tokens.append((start, end, token))
        if end != len(part.text):
            # They do not spell the text (bytes of a split character, say), so none has a place of its own in it.
            tokens = deque((0, len(part.text), token) for _, _, token in tokens)
        return cls(part.frame, part.text, len(part.text), tokens)

    def take(self, length: int) -> TextSlice:
        """The next ``length`` code points. A token across their end counts as theirs if only white space of it lies
        beyond; otherwise it goes with neither side, since either may be withheld."""
        text, self.rest = self.rest[:length], self.rest[length:]
        self.taken += len(text)
        tokens = []
        while self.tokens and self.tokens[0][0] < self.taken:
            _, end, token = self.tokens.popleft()
            if not self.rest[: max(0, end - self.taken)].strip():
                tokens.append(token)
        return TextSlice(frame=self.frame, text=text, tokens=tokens)
