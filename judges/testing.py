"""Test doubles for judges, for our own tests and for the tests of packages that build on this one."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from judges.llm_types import LlmCall, LlmVerdict
from judges.types import Evidence, Label, Probabilities

Pair = tuple[str, str]
Answers = Callable[[str, str], Probabilities]


def entails(probability: float = 0.95) -> Probabilities:
    """Return the probabilities of a pair whose claim is entailed with ``probability`` and otherwise neutral."""
    return Probabilities(probability, 1.0 - probability, 0.0)


def contradicts(probability: float = 0.95) -> Probabilities:
    """Return the probabilities of a pair whose claim is contradicted with ``probability`` and otherwise neutral."""
    return Probabilities(0.0, 1.0 - probability, probability)


NEUTRAL = Probabilities(0.0, 1.0, 0.0)


class ScriptedJudge:
    """A ``PairScorer`` with scripted answers, which counts each word as a token.

    Args:
        answers: a function of (evidence, claim), or a mapping from claims or (evidence, claim) pairs to answers.
        default: the answer for everything else.
        name: the name in reports.
        max_tokens: maximum number of words in evidence and claim together.
        gate: an event; answers wait until it is set.
        error: raised by every call of ``score``.
        start_error: raised by ``start``.

    ``calls`` holds the pairs of each call.
    """

    def __init__(
        self,
        answers: Answers | Mapping[str, Probabilities] | Mapping[Pair, Probabilities] | None = None,
        *,
        default: Probabilities = NEUTRAL,
        name: str = "scripted",
        max_tokens: int = 512,
        gate: asyncio.Event | None = None,
        error: Exception | None = None,
        start_error: Exception | None = None,
    ) -> None:
        self._answer: Answers | None = answers if callable(answers) else None
        self._script: dict[str | Pair, Probabilities] = {}
        if answers is not None and not callable(answers):
            self._script.update(answers.items())
        self._default = default
        self.name = name
        self.max_tokens = max_tokens
        self.gate = gate
        self.error = error
        self.start_error = start_error
        self.calls: list[list[Pair]] = []
        self.started = False
        self.closed = False

    @property
    def pairs(self) -> list[Pair]:
        """Every pair scored so far, in order."""
        return [pair for call in self.calls for pair in call]

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def score(self, pairs: Sequence[Pair]) -> Sequence[Probabilities]:
        self.calls.append(list(pairs))
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [self._one(evidence, claim) for evidence, claim in pairs]

    async def start(self) -> None:
        if self.start_error is not None:
            raise self.start_error
        self.started = True

    async def aclose(self) -> None:
        self.closed = True

    def _one(self, evidence: str, claim: str) -> Probabilities:
        if self._answer is not None:
            return self._answer(evidence, claim)
        by_claim = self._script.get(claim, self._default)
        return self._script.get((evidence, claim), by_claim)


UNDECIDED = LlmVerdict(label=Label.UNVERIFIABLE, confidence=0.9)


class ScriptedLlm:
    """An ``LlmClaimJudge`` with scripted answers.

    Args:
        verdicts: the verdict of each claim, or an exception to raise.
        parts: the atomic claims of each sentence, or an exception to raise. Defaults to the sentence itself.
        default: the verdict of every other claim.
        name: the name in reports.
        ready: whether it can be called.
        gate: an event; answers wait until it is set.

    ``asked`` holds the claims that it was asked to judge, with their passages, in order.
    """

    def __init__(
        self,
        verdicts: Mapping[str, LlmVerdict | Exception] | None = None,
        *,
        parts: Mapping[str, Sequence[str] | Exception] | None = None,
        default: LlmVerdict = UNDECIDED,
        name: str = "scripted-llm",
        ready: bool = True,
        gate: asyncio.Event | None = None,
    ) -> None:
        self._verdicts = dict(verdicts or {})
        self._parts = dict(parts or {})
        self._default = default
        self._gate = gate
        self.name = name
        self.ready = ready
        self.asked: list[tuple[str, Sequence[Evidence]]] = []

    async def judge(
        self, claim: str, context: str, passages: Sequence[Evidence], record: Callable[[LlmCall], None]
    ) -> LlmVerdict:
        self.asked.append((claim, passages))
        if self._gate is not None:
            await self._gate.wait()
        verdict = self._verdicts.get(claim, self._default)
        if isinstance(verdict, Exception):
            record(LlmCall(mode="claim", model=self.name, outcome="error"))
            raise verdict
        record(LlmCall(mode="claim", model=self.name, outcome="ok", prompt_tokens=10, completion_tokens=2))
        return verdict

    async def decompose(self, sentence: str, context: str, record: Callable[[LlmCall], None]) -> Sequence[str]:
        if self._gate is not None:
            await self._gate.wait()
        parts = self._parts.get(sentence, [sentence])
        if isinstance(parts, Exception):
            raise parts
        record(LlmCall(mode="decompose", model=self.name, outcome="ok", prompt_tokens=5, completion_tokens=5))
        return parts
