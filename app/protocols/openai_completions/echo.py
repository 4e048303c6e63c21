"""The prompt that a plain completion repeats before its text on request (``echo``)."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Echo:
    """Separates the prompt from the text after it, for one choice. ``hidden`` code points at its beginning were written
    before the caller's prompt; the caller does not get them."""

    left: str
    hidden: int = 0

    def take(self, text: str) -> tuple[int, int]:
        """How much of ``text``, which came next, is hidden, and how much (including that) repeats the prompt."""
        repeated = min(len(text), len(self.left))
        if text[:repeated] != self.left[:repeated]:
            # Not the prompt: this upstream does not repeat it.
            self.left, self.hidden = "", 0
            return 0, 0
        self.left = self.left[repeated:]
        hidden = min(self.hidden, repeated)
        self.hidden -= hidden
        return hidden, repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The prompts of a request. ``hidden`` is how much was written before each."""

    texts: Sequence[str | None]
    choices: int
    """How many choices each of them has."""
    hidden: int = 0

    def echo(self, index: int) -> Echo:
        """What the choice at ``index`` repeats; nothing if the prompt is not text."""
        position = index // max(1, self.choices)
        text = self.texts[position] if position < len(self.texts) else None
        return Echo(text or "", self.hidden if text else 0)
