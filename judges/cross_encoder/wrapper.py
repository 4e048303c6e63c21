"""The base of the scorers that wrap another scorer."""

from collections.abc import Sequence

from judges.protocols import PairScorer, read_ahead
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

    @property
    def fuses(self) -> bool:
        """Whether a claim is read against several windows at little more than the cost of one."""
        return bool(getattr(self._scorer, "fuses", False))

    @property
    def languages(self) -> frozenset[str] | None:
        """Codes of the languages that the model knows; None for all, or where nobody says."""
        known: frozenset[str] | None = getattr(self._scorer, "languages", None)
        return known

    @property
    def silent_s(self) -> float:
        """For how long the scorer has owed an answer, where somebody takes the time."""
        return float(getattr(self._scorer, "silent_s", 0.0))

    def count_tokens(self, text: str) -> int:
        return self._scorer.count_tokens(text)

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        return await self._scorer.score(pairs)

    async def read(self, texts: Sequence[str]) -> None:
        """Let the scorer read texts ahead, if it is one that does."""
        await read_ahead(self._scorer, texts)

    async def start(self) -> None:
        await self._scorer.start()

    async def aclose(self) -> None:
        await self._scorer.aclose()
