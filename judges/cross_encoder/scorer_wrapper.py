"""The base class for scorers that wrap another scorer."""

from collections.abc import Sequence

from judges.protocols import EvidenceCache, PairScorer
from judges.types import Probabilities, Windowing


class ScorerWrapper:
    """Passes every call on to ``scorer``. Subclasses override some of the methods."""

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
        """Whether a claim with several windows takes barely longer than a claim with one."""
        return bool(getattr(self._scorer, "fuses", False))

    @property
    def languages(self) -> frozenset[str] | None:
        """Codes of the languages that the model supports; None means all, or unknown."""
        known: frozenset[str] | None = getattr(self._scorer, "languages", None)
        return known

    @property
    def fault(self) -> str | None:
        """Why the scorer is unavailable or only partly available after ``start``; None if it is fully available."""
        value: str | None = getattr(self._scorer, "fault", None)
        return value

    @property
    def threshold(self) -> float | None:
        """The P(entailed) at which the scorer's authors call a claim supported, or None if it is not known."""
        value: float | None = getattr(self._scorer, "threshold", None)
        return value

    @property
    def stage_thresholds(self) -> tuple[float | None, ...]:
        """The thresholds of the judges in a cascade; empty for a single judge."""
        values: tuple[float | None, ...] = getattr(self._scorer, "stage_thresholds", ())
        return values

    @property
    def windowing(self) -> Windowing | None:
        """How evidence is cut for the scorer; None means the checker's default."""
        value: Windowing | None = getattr(self._scorer, "windowing", None)
        return value

    @property
    def paid(self) -> bool:
        """Whether the scorer records its calls in ``judges.call_recording``."""
        return bool(getattr(self._scorer, "paid", False))

    @property
    def tokenizer_json(self) -> bytes | None:
        """The tokenizer that counts tokens, in the format of ``tokenizer.json``; None if there is no such file."""
        content: bytes | None = getattr(self._scorer, "tokenizer_json", None)
        return content

    @property
    def stalled_s(self) -> float:
        """Age in seconds of the oldest pending request to the scorer; 0 if none is pending."""
        return float(getattr(self._scorer, "stalled_s", 0.0))

    def count_tokens(self, text: str) -> int:
        return self._scorer.count_tokens(text)

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        return await self._scorer.score(pairs)

    async def prefill(self, texts: Sequence[str]) -> None:
        """Let the scorer process evidence before the claims arrive, if it caches evidence."""
        if isinstance(self._scorer, EvidenceCache):
            await self._scorer.prefill(texts)

    async def start(self) -> None:
        await self._scorer.start()

    async def aclose(self) -> None:
        await self._scorer.aclose()
