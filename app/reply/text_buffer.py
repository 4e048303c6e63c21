"""Holds the text of a choice until it is judged, with its frames and log-probabilities."""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from msgspec import Struct

from app.protocols.common.logprobs import places_of
from app.protocols.common.stream_events import Frame, TextDelta, TextSlice
from judges.checker import ReplyCheck
from judges.concurrency import MAX_INLINE_SPLIT_CHARS, run
from judges.types import Sentence, Span


class TextBuffer:
    """A queue of held text. ``add`` appends text, and ``cut`` takes text from the front. ``taken`` is the length taken
    so far."""

    def __init__(self, taken: int = 0) -> None:
        self.taken = taken
        self._held: deque[_BufferedText] = deque()

    @property
    def rest(self) -> str:
        return "".join(held.text[held.taken :] for held in self._held)

    def __bool__(self) -> bool:
        """Return whether the buffer contains text."""
        return any(held.taken < len(held.text) for held in self._held)

    def add(self, part: TextDelta) -> None:
        tokens = None
        if part.frame.tokens:
            # If the tokens don't spell the text, their positions are unknown. Each token is then assigned to all of the
            # text.
            places = places_of(part.frame.tokens, part.text) or repeat((0, len(part.text)))
            tokens = deque((start, end, token) for (start, end), token in zip(places, part.frame.tokens, strict=False))
        self._held.append(_BufferedText(part.frame, part.text, tokens))

    def cut(self, end: int | None = None) -> Sequence[TextSlice]:
        """Take the text up to the position ``end`` of the reply, or all text if ``end`` is None. Return it as slices of
        its frames."""
        slices: list[TextSlice] = []
        while self._held and (end is None or self.taken < end):
            held = self._held[0]
            if held.taken == len(held.text):  # this frame has no text, only tokens that form a part of a character
                slices.append(TextSlice(frame=held.frame, text="", tokens=held.frame.tokens or ()))
                self._held.popleft()
                continue
            taken = held.take(len(held.text) - held.taken if end is None else end - self.taken)
            slices.append(taken)
            self.taken += len(taken.text)
            if held.taken == len(held.text):
                self._held.popleft()
        return slices


class SentenceBuffer(TextBuffer):
    """A buffer whose text ``check`` splits into sentences. Without a check, all text up to a pause is one sentence."""

    def __init__(self, check: ReplyCheck | None) -> None:
        super().__init__()
        self._check = check
        self._unjudged_runs = 0

    async def push(self, text: str) -> Sequence[Sentence]:
        """Return the sentences that ``text`` completes. Call ``add`` with the text first."""
        if self._check is None:
            return ()
        return await run(len(text) <= MAX_INLINE_SPLIT_CHARS, self._check.push, text)

    def pause(self) -> Sequence[Sentence]:
        """Handle a break that no sentence spans. End the current sentence, and return the sentences before it."""
        return self._check.pause() if self._check is not None else self._rest()

    def flush(self, *, truncated: bool) -> Sequence[Sentence]:
        """Return the remaining sentences. ``truncated`` means that the text was cut off."""
        return self._check.flush(truncated=truncated) if self._check is not None else self._rest()

    def restart(self, index: int) -> None:
        """Prepare for a regenerated reply that starts with the sentence ``index``."""
        if self._check is not None:
            self._held.clear()
            self.taken = self._check.restart(index)

    def _rest(self) -> Sequence[Sentence]:
        text = self.rest
        if not text:
            return ()
        self._unjudged_runs += 1
        span = Span(self.taken, self.taken + len(text))
        return (Sentence(index=self._unjudged_runs - 1, text=text, span=span, plain=""),)


class _BufferedText(Struct):
    """The held text of a frame, with its log-probability entries and their start and end."""

    frame: Frame
    text: str
    tokens: deque[tuple[int, int, Mapping[str, Any]]] | None = None
    taken: int = 0

    def take(self, length: int) -> TextSlice:
        """Take the next ``length`` code points. If a token extends beyond them only by whitespace, it is included. If
        it extends further, it is excluded on both sides of the cut, because the text on the other side may be withheld.
        """
        text = self.text[self.taken : self.taken + length]
        self.taken += len(text)
        tokens = []
        while self.tokens and self.tokens[0][0] < self.taken:
            _, end, token = self.tokens.popleft()
            if not self.text[self.taken : end].strip():
                tokens.append(token)
        return TextSlice(frame=self.frame, text=text, tokens=tokens)
