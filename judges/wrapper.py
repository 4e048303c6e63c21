"""The base of the scorers that wrap another scorer."""

from collections.abc import Sequence

from judges.base import PairScorer
from judges.types import Probabilities


class ScorerWrapper:
    """Passes everything on to ``scorer``; a subclass overrides what it changes."""

    def __init__(self, scorer: PairScorer) -> None:
        self._scorer = scorer

    @property
    def name(self) -> str:
        return self._scorer.name

    @property
    def max_tokens(self) -> int:
        return self._scorer.max_tokens

    def count_tokens(self, text: str) -> int:
        return self._scorer.count_tokens(text)

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        return await self._scorer.score(pairs)

    async def start(self) -> None:
        await self._scorer.start()

    async def aclose(self) -> None:
        await self._scorer.aclose()
