"""Two encoders that read the same evidence: a small one, which scores every window, and a larger one, which reads all
windows of a claim together. The combiner (``judges.features``) weighs the two.
"""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from judges.cross_encoder.cached_evidence.scorer import CachedEvidenceScorer
from judges.cross_encoder.scorer_wrapper import ScorerWrapper
from judges.types import Probabilities


class SecondEncoderScorer(ScorerWrapper):
    """Scores pairs with ``first``, and adds the probabilities from ``second`` as ``Probabilities.second``.

    ``first`` determines how evidence is cut, and which windows support a claim. ``second`` should have been created
    with ``separately=False``. The pairs of both are scored concurrently.
    """

    def __init__(self, first: CachedEvidenceScorer, second: CachedEvidenceScorer) -> None:
        super().__init__(first)
        self._second = second
        self.concurrency = first.concurrency
        """Number of ``score`` calls that run in parallel."""

    @property
    def name(self) -> str:
        """The first encoder's name and, once loaded, the first digits of the second encoder's SHA-256."""
        _, loaded, digest = self._second.name.rpartition("@")
        return f"{super().name}+{digest}" if loaded else super().name

    async def start(self) -> None:
        await asyncio.gather(super().start(), self._second.start())

    async def aclose(self) -> None:
        await asyncio.gather(super().aclose(), self._second.aclose())

    async def prefill(self, texts: Sequence[str]) -> None:
        """Encode evidence before a claim needs it. Raises JudgeError."""
        await asyncio.gather(super().prefill(texts), self._second.prefill(texts))

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        """Score (evidence, claim) pairs, in order. Raises JudgeError."""
        scores, seconds = await asyncio.gather(super().score(pairs), self._second.score(pairs))
        return [replace(score, second=second) for score, second in zip(scores, seconds, strict=True)]
