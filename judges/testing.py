"""The test double of judging, shipped so that those who build on the package need not write one."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from judges.types import Evidence, Label, LlmCall, Opinion, Probabilities

Pair = tuple[str, str]
Answer = Callable[[str, str], Probabilities]


def entails(probability: float = 0.95) -> Probabilities:
    """The answer of a judge that holds a claim to be entailed with ``probability``."""
    return Probabilities(probability, 1.0 - probability, 0.0)


def contradicts(probability: float = 0.95) -> Probabilities:
    """The answer of a judge that holds a claim to be contradicted with ``probability``."""
    return Probabilities(0.0, 1.0 - probability, probability)


NEUTRAL = Probabilities(0.0, 1.0, 0.0)


class ScriptedJudge:
    """A pair scorer that answers from a script, and counts words for tokens.

    ``answers``: a function of (evidence, claim), or a mapping from a claim, or from an (evidence, claim) pair, to the
    answer; what it does not name gets ``default``. ``gate``: an answer waits until it is set. ``error`` is raised by
    every ``score``, ``start_error`` by ``start``. ``calls`` holds the pairs of each call.
    """

    def __init__(
        self,
        answers: Answer | Mapping[str, Probabilities] | Mapping[Pair, Probabilities] | None = None,
        *,
        default: Probabilities = NEUTRAL,
        name: str = "scripted",
        max_tokens: int = 512,
        gate: asyncio.Event | None = None,
        error: Exception | None = None,
        start_error: Exception | None = None,
    ) -> None:
        self._answer: Answer | None = answers if callable(answers) else None
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
        """Every pair asked about so far, in order."""
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


UNDECIDED = Opinion(label=Label.UNVERIFIABLE, confidence=0.9)


class ScriptedLlm:
    """A claim judge that answers from a script.

    ``opinions`` maps a claim to the answer, an exception being raised; what it does not name gets ``default``.
    ``parts`` maps a sentence to its atomic claims. ``gate``: an answer waits until it is set. ``asked`` holds the
    claims asked about with their passages, in order.
    """

    def __init__(
        self,
        opinions: Mapping[str, Opinion | Exception] | None = None,
        *,
        parts: Mapping[str, Sequence[str] | Exception] | None = None,
        default: Opinion = UNDECIDED,
        name: str = "scripted-llm",
        ready: bool = True,
        gate: asyncio.Event | None = None,
    ) -> None:
        self._opinions = dict(opinions or {})
        self._parts = dict(parts or {})
        self._default = default
        self._gate = gate
        self.name = name
        self.ready = ready
        self.asked: list[tuple[str, Sequence[Evidence]]] = []

    async def judge(
        self, claim: str, context: str, passages: Sequence[Evidence], record: Callable[[LlmCall], None]
    ) -> Opinion:
        self.asked.append((claim, passages))
        if self._gate is not None:
            await self._gate.wait()
        opinion = self._opinions.get(claim, self._default)
        if isinstance(opinion, Exception):
            record(LlmCall(mode="claim", model=self.name, outcome="error"))
            raise opinion
        record(LlmCall(mode="claim", model=self.name, outcome="ok", prompt_tokens=10, completion_tokens=2))
        return opinion

    async def decompose(self, sentence: str, context: str, record: Callable[[LlmCall], None]) -> Sequence[str]:
        if self._gate is not None:
            await self._gate.wait()
        parts = self._parts.get(sentence, [sentence])
        if isinstance(parts, Exception):
            raise parts
        record(LlmCall(mode="decompose", model=self.name, outcome="ok", prompt_tokens=5, completion_tokens=5))
        return parts
