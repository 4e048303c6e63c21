"""The base class for scorers that wrap another scorer."""

from collections.abc import Sequence

from judges.protocols import PairScorer, prefill
from judges.types import Probabilities


class ScorerWrapper:
    """Passes every call on to ``scorer``; subclasses override what they change."""

    def __init__(self, scorer: PairScorer) -> None:
        self._scorer = scorer

    @property
    def name(self) -> str:
        return self._scorer.name

    @property
    def max_tokens(self) -> int:
        return self._scorer.max_tokens

    @property
    def fuses(self) -> bool:
        """Whether the scorer judges a claim against several windows for little more than the cost of one."""
        return bool(getattr(self._scorer, "fuses", False))

    @property
    def languages(self) -> frozenset[str] | None:
        """Codes of the languages that the model knows; None for all, or if unknown."""
        known: frozenset[str] | None = getattr(self._scorer, "languages", None)
        return known

    @property
    def stalled_s(self) -> float:
        """Seconds since the oldest pending request to the scorer, or 0 if no request is pending."""
        return float(getattr(self._scorer, "stalled_s", 0.0))

    def count_tokens(self, text: str) -> int:
        return self._scorer.count_tokens(text)

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        return await self._scorer.score(pairs)

    async def prefill(self, texts: Sequence[str]) -> None:
        """Let the scorer process evidence ahead of claims, if it caches evidence."""
        await prefill(self._scorer, texts)

    async def start(self) -> None:
        await self._scorer.start()

    async def aclose(self) -> None:
        await self._scorer.aclose()
