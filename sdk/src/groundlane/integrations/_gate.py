"""A text that streams, let out sentence by sentence as each is checked."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from groundlane.integrations._guard import Guard, Verdict

Documents = Callable[[], Sequence[Mapping[str, Any]] | None]
"""The documents as far as they are known; None: they are still to come."""

_END = re.compile(r"[.!?…。！？][\"'”’»)\]*_]{0,6}\s|\n")
_LONGEST_END = 8


class Gate:
    """Holds a text back until it is checked, each time with all that came before it, so that a sentence is read in its
    context. What ends a sentence is guessed here; the gateway splits the text for itself, so that a wrong guess costs
    a check and lets nothing through."""

    def __init__(self) -> None:
        self.text = ""
        self.closed = False
        """Something was blocked: nothing more goes out."""
        self._ready = 0
        self._out = 0

    @property
    def ready(self) -> str:
        """The text as far as its sentences have ended."""
        return self.text[: self._ready]

    def feed(self, delta: str) -> bool:
        """Take more text. Whether a sentence has ended in it, so that a check is due."""
        start = max(len(self.text) - _LONGEST_END, self._ready)
        self.text += delta
        ends = [found.end() for found in _END.finditer(self.text, start)]
        self._ready = ends[-1] if ends else self._ready
        return bool(ends) and not self.closed and bool(self.ready.strip())

    def finish(self) -> None:
        """The text has ended."""
        self._ready = len(self.text)

    def let_out(self, verdict: Verdict, replacement: str) -> str:
        """What may go out by the ``verdict`` on what was ready. Where it is blocked: what stands before the first
        contradicted claim, and then the ``replacement``."""
        start, end = self._out, self._ready
        if verdict.blocked:
            bad = [claim.span.start if claim.span else 0 for claim in verdict.contradicted]
            end = max(start, min(bad, default=start))
        self._out, text = end, self.text[start:end]
        if not verdict.blocked:
            return text
        self.closed = True
        apart = end == 0 or self.text[end - 1].isspace()
        return f"{text}{'' if apart else ' '}{replacement}"


class Gated:
    """Text as it may go out. ``verdict`` is the last one; once all has been read, it is on all of it.

    Where the documents are still to come, or the guard blocks for the whole alone, the text is held until its end.
    """

    def __init__(self, guard: Guard, documents: Documents, *, replacement: str) -> None:
        self._guard, self._documents, self._replacement = guard, documents, replacement
        self._gate = Gate()
        self.verdict: Verdict | None = None

    @property
    def blocked(self) -> bool:
        return self._gate.closed

    @property
    def text(self) -> str:
        """All that came in."""
        return self._gate.text

    def push(self, delta: str) -> str:
        """More text has come; what may go out now."""
        known = self._due(delta)
        return "" if known is None else self._let_out(self._guard.check(self._gate.ready, known, partial=True))

    def finish(self) -> str:
        """The text has ended; what else may go out."""
        known = self._last()
        return "" if known is None else self._let_out(self._guard.check(self._gate.text, known))

    async def apush(self, delta: str) -> str:
        known = self._due(delta)
        return "" if known is None else self._let_out(await self._guard.acheck(self._gate.ready, known, partial=True))

    async def afinish(self) -> str:
        known = self._last()
        return "" if known is None else self._let_out(await self._guard.acheck(self._gate.text, known))

    def _due(self, delta: str) -> Sequence[Mapping[str, Any]] | None:
        """The documents to check against what is ready; None: it is not time."""
        if not self._gate.feed(delta) or self._guard.block_on == "ungrounded":
            return None
        return self._documents()

    def _last(self) -> Sequence[Mapping[str, Any]] | None:
        self._gate.finish()
        return None if self.blocked or not self._gate.text.strip() else self._documents() or []

    def _let_out(self, verdict: Verdict) -> str:
        self.verdict = verdict
        return self._gate.let_out(verdict, self._replacement)
