"""Handles the prompt that a plain completion repeats before its text on request (``echo``)."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Echo:
    """Separates the repeated prompt from the text after it, for one choice. The gateway added the first ``hidden`` code
    points before the caller's prompt. The caller doesn't receive them.
    """

    left: str
    hidden: int = 0

    def take(self, text: str) -> tuple[int, int]:
        """Process the next ``text``. Return the length of its hidden part, and the length of the part that repeats the
        prompt, which includes the hidden part.
        """
        repeated = min(len(text), len(self.left))
        if text[:repeated] != self.left[:repeated]:
            # This is not the prompt, so the upstream doesn't repeat it.
            self.left, self.hidden = "", 0
            return 0, 0
        self.left = self.left[repeated:]
        hidden = min(self.hidden, repeated)
        self.hidden -= hidden
        return hidden, repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The prompts of a request. ``hidden`` is the length of the text that was added before each prompt."""

    texts: Sequence[str | None]
    choices: int
    """The number of choices for each prompt."""
    hidden: int = 0

    def echo(self, index: int) -> Echo:
        """Return the prompt that the choice at ``index`` repeats. It is empty if the prompt is not text."""
        position = index // max(1, self.choices)
        text = self.texts[position] if position < len(self.texts) else None
        return Echo(text or "", self.hidden if text else 0)
