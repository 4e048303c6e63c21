"""A judge with scripted answers, which can be delayed."""

import asyncio
import threading
from collections.abc import Sequence

from judges.testing import NEUTRAL, ScriptedJudge, contradicts, entails
from judges.types import Label, Probabilities

_ANSWERS = {Label.SUPPORTED: entails(), Label.CONTRADICTED: contradicts(), Label.UNVERIFIABLE: NEUTRAL}
_LONGEST_HOLD_S = 30.0


class KnowingJudge(ScriptedJudge):
    """A judge that knows its answers. ``labels`` maps part of a claim's text to the claim's label; the first match
    counts, and claims without a match get ``default``. ``pairs_known`` maps part of the evidence and part of the claim
    to the probabilities, and takes precedence over ``labels``. ``hold`` makes every answer wait until ``release``.
    ``asked`` says whether the judge was called since the last ``reset``."""

    def __init__(self) -> None:
        super().__init__(self._answer_for)
        self._open = threading.Event()
        self.reset()

    def reset(self) -> None:
        self.labels: dict[str, Label] = {}
        self.pairs_known: dict[tuple[str, str], Probabilities] = {}
        self.default = Label.SUPPORTED
        self.calls.clear()
        self.asked = False
        self._open.set()

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    @property
    def claims(self) -> list[str]:
        """Every claim that the judge was asked about, in order."""
        return [claim for _, claim in self.pairs]

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        self.asked = True
        if not self._open.is_set():
            await asyncio.to_thread(self._open.wait, _LONGEST_HOLD_S)
        return await super().score(pairs)

    def _answer_for(self, evidence: str, claim: str) -> Probabilities:
        for (in_evidence, in_claim), known in self.pairs_known.items():
            if in_evidence in evidence and in_claim in claim:
                return known
        return _ANSWERS[next((label for piece, label in self.labels.items() if piece in claim), self.default)]
