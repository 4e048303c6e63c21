"""Text of a choice that is held until it is judged, with the frames it came in and its log-probabilities."""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from msgspec import Struct

from app.protocols.common.logprobs import places_of
from app.protocols.common.stream_events import Frame, TextDelta, TextSlice


class TextBuffer:
    """A queue of text that is held. ``add`` appends, ``cut`` takes from the front; ``taken`` is how much was taken."""

    def __init__(self, taken: int = 0) -> None:
        self.taken = taken
        self._held: deque[_BufferedText] = deque()

    @property
    def rest(self) -> str:
        return "".join(held.text[held.taken :] for held in self._held)

    def __bool__(self) -> bool:
        """Whether there is text."""
        return any(held.taken < len(held.text) for held in self._held)

    def add(self, part: TextDelta) -> None:
        self._held.append(_BufferedText.of(part))

    def cut(self, end: int | None = None) -> Sequence[TextSlice]:
        """Take the text up to position ``end`` of the reply (by default, all of it), as slices of its frames."""
        slices: list[TextSlice] = []
        while self._held and (end is None or self.taken < end):
            held = self._held[0]
            if held.taken == len(held.text):  # log-probabilities alone, of a character that comes in several tokens
                slices.append(TextSlice(frame=held.frame, text="", tokens=held.frame.tokens or ()))
                self._held.popleft()
                continue
            taken = held.take(len(held.text) - held.taken if end is None else end - self.taken)
            slices.append(taken)
            self.taken += len(taken.text)
            if held.taken == len(held.text):
                self._held.popleft()
        return slices


class _BufferedText(Struct):
    """Text of a frame that is held, and its log-probability entries, each with where it begins and ends."""

    frame: Frame
    text: str
    tokens: deque[tuple[int, int, Mapping[str, Any]]] | None = None
    taken: int = 0

    @classmethod
    def of(cls, part: TextDelta) -> "_BufferedText":
        if not part.frame.tokens:
            return cls(part.frame, part.text)
        # Tokens that do not spell the text have no place in it.
        places = places_of(part.frame.tokens, part.text) or repeat((0, len(part.text)))
        tokens = deque((start, end, token) for (start, end), token in zip(places, part.frame.tokens, strict=False))
        return cls(part.frame, part.text, tokens)

    def take(self, length: int) -> TextSlice:
        """The next ``length`` code points. A token across their end goes with them if only white space of it lies
        beyond; otherwise with neither side, since either may be withheld."""
        text = self.text[self.taken : self.taken + length]
        self.taken += len(text)
        tokens = []
        while self.tokens and self.tokens[0][0] < self.taken:
            _, end, token = self.tokens.popleft()
            if not self.text[self.taken : end].strip():
                tokens.append(token)
        return TextSlice(frame=self.frame, text=text, tokens=tokens)
