"""Releases streamed text sentence by sentence, after checking each sentence."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from groundlane.integrations._guard import Guard, Verdict

Question = Callable[[], str | None]
"""Returns the user's question, or None if it isn't known."""
Documents = Callable[[], Sequence[Mapping[str, Any]] | None]
"""Returns the documents known so far, or None if they have not arrived yet."""

_END = re.compile(r"[.!?…。！？][\"'”’»)\]*_]{0,6}\s|\n")
_LONGEST_END = 8


class Gate:
    """Holds back text until it is checked. Each check covers the whole text so far, so that every sentence is judged in
    context. Sentence ends are only estimated here. Because the gateway splits the text too, a wrong estimate costs an
    extra check but releases nothing unchecked."""

    def __init__(self) -> None:
        self.text = ""
        self.closed = False
        """Whether text was blocked. If so, nothing more is released."""
        self._ready = 0
        self._out = 0

    @property
    def ready(self) -> str:
        """The text up to the last complete sentence."""
        return self.text[: self._ready]

    def feed(self, delta: str) -> bool:
        """Add text. Return True if a sentence is now complete and a check is due."""
        start = max(len(self.text) - _LONGEST_END, self._ready)
        self.text += delta
        ends = [found.end() for found in _END.finditer(self.text, start)]
        self._ready = ends[-1] if ends else self._ready
        return bool(ends) and not self.closed and bool(self.ready.strip())

    def finish(self) -> None:
        """Mark the end of the text."""
        self._ready = len(self.text)

    def release(self, verdict: Verdict, replacement: str) -> str:
        """Return the text that may be delivered, given the ``verdict`` on the ready text. If the ready text is blocked,
        return ``replacement``. If contradicted claims are the only reason, ``replacement`` follows the text before the
        first of them."""
        start, end = self._out, self._ready
        if verdict.blocked:
            bad = [claim.span.start if claim.span else 0 for claim in verdict.contradicted if verdict.repairable]
            end = max(start, min(bad, default=start))
        self._out, text = end, self.text[start:end]
        if not verdict.blocked:
            return text
        self.closed = True
        apart = end == 0 or self.text[end - 1].isspace()
        return f"{text}{'' if apart else ' '}{replacement}"


class Gated:
    """A stream of text that is delivered only after it is checked. ``verdict`` is the latest verdict. At the end of the
    stream, it covers the whole text.

    All text is held until the end if the documents arrive only then, or if the guard decides at the end.
    """

    def __init__(
        self, guard: Guard, documents: Documents, *, replacement: str, question: Question = lambda: None
    ) -> None:
        self._guard, self._documents, self._replacement = guard, documents, replacement
        self._question = question
        self._gate = Gate()
        self.verdict: Verdict | None = None

    @property
    def blocked(self) -> bool:
        return self._gate.closed

    @property
    def text(self) -> str:
        """The whole text so far."""
        return self._gate.text

    def push(self, delta: str) -> str:
        """Add text and return the text that may be delivered now."""
        known = self._due(delta)
        return "" if known is None else self._release(self._check(self._gate.ready, known))

    def finish(self) -> str:
        """Mark the end of the text and return the remaining text that may be delivered."""
        known = self._last()
        return "" if known is None else self._release(self._check(self._gate.text, known))

    async def apush(self, delta: str) -> str:
        known = self._due(delta)
        return "" if known is None else self._release(await self._acheck(self._gate.ready, known))

    async def afinish(self) -> str:
        known = self._last()
        return "" if known is None else self._release(await self._acheck(self._gate.text, known))

    def _check(self, text: str, documents: Sequence[Mapping[str, Any]]) -> Verdict:
        return self._guard.check(text, documents, question=self._question())

    async def _acheck(self, text: str, documents: Sequence[Mapping[str, Any]]) -> Verdict:
        return await self._guard.acheck(text, documents, question=self._question())

    def _due(self, delta: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the documents for checking the ready text, or None if no check is due."""
        if not self._gate.feed(delta) or self._guard.decides_at_end:
            return None
        return self._documents()

    def _last(self) -> Sequence[Mapping[str, Any]] | None:
        self._gate.finish()
        return None if self.blocked or not self._gate.text.strip() else self._documents() or []

    def _release(self, verdict: Verdict) -> str:
        self.verdict = verdict
        return self._gate.release(verdict, self._replacement)
