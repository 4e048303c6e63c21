"""Handles ``echo``, an option that makes a plain completion repeat the prompt before its text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.protocols.common.logprobs import joined


@dataclass(slots=True)
class Echo:
    """Separates the repeated prompt from the text after it, for one choice. The first ``hidden`` code points of the
    prompt were added by the gateway. They are not sent to the caller. ``held`` contains pieces of the choice that may
    be the beginning of the prompt."""

    left: str
    hidden: int = 0
    held: list[Mapping[str, Any]] = field(default_factory=list)
    _arrived: int = 0
    """The length of the text in ``held``."""

    def hold(self, piece: Mapping[str, Any], *, ends: bool) -> Mapping[str, Any] | None:
        """Hold pieces of the choice until they contain the complete prompt, so that the upstream can't decide where the
        prompt ends. Return the pieces joined into one, or None if more are needed. If the choice ends before that, or
        differs from the prompt, it doesn't repeat the prompt, so all of its text is judged."""
        if not self.left:
            return piece
        text = _text(piece)
        common = text[: len(self.left) - self._arrived]
        repeats = self.left.startswith(common, self._arrived)
        self.held.append(piece)
        self._arrived += len(text)
        if repeats and self._arrived < len(self.left) and not ends:
            return None
        if not repeats or self._arrived < len(self.left):
            self.left, self.hidden = "", 0
        pieces, self.held = self.held, []
        return piece if len(pieces) == 1 else _merged(pieces)

    def take(self, text: str) -> tuple[int, int]:
        """Process the next ``text``. Return the length of its hidden part, and the length of the part that repeats the
        prompt, which includes the hidden part."""
        repeated = min(len(text), len(self.left))
        if text[:repeated] != self.left[:repeated]:
            # The text differs from the prompt, so the upstream doesn't repeat the prompt.
            self.left, self.hidden = "", 0
            return 0, 0
        self.left = self.left[repeated:]
        hidden = min(self.hidden, repeated)
        self.hidden -= hidden
        return hidden, repeated


def _merged(pieces: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Join the pieces of a choice into one. Log-probabilities are kept only if every piece with text has some."""
    listed = [piece["logprobs"] for piece in pieces if isinstance(piece.get("logprobs"), dict)]
    complete = len(listed) == sum(bool(_text(piece)) or piece.get("logprobs") is not None for piece in pieces)
    logprobs = joined(listed[0], listed) if listed and complete else None
    return {**pieces[-1], "text": "".join(map(_text, pieces)), "logprobs": logprobs}


def _text(piece: Mapping[str, Any]) -> str:
    text = piece.get("text")
    return text if isinstance(text, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The prompts of a request. ``hidden`` is the length of the text that was added before each prompt."""

    texts: Sequence[str | None]
    choices: int
    """The number of choices for each prompt."""
    hidden: int = 0

    def echo(self, index: int) -> Echo:
        """Return an ``Echo`` for the prompt that the choice at ``index`` repeats. If the prompt is not text, the
        ``Echo`` is for an empty prompt."""
        position = index // max(1, self.choices)
        text = self.texts[position] if position < len(self.texts) else None
        return Echo(text or "", self.hidden if text else 0)
