"""A reply and its chunks to a report, sentence by sentence; the same for a stream and for a whole reply.

``GroundingChecker`` lives as long as the process and is shared by all requests. ``prepare`` cuts a request's chunks
into evidence, ``reply`` opens the check of one reply against it (``judges.reply``).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from judges import signals as default_signals
from judges.adjudication import Adjudicator, Signals
from judges.base import ClaimExtractor, JudgeError, PairScorer, SentenceSplitter
from judges.claims import HeuristicExtractor
from judges.evidence import EvidenceIndex, Windowing, build_index
from judges.reply import ReplyCheck
from judges.sentences import IncrementalSplitter
from judges.types import Chunk, Thresholds

__all__ = ["GroundingChecker", "ReplyCheck"]

log = logging.getLogger(__name__)

_UNLOADED_MAX_TOKENS = 512


class GroundingChecker:
    """Checks replies with ``scorer``, which it starts and closes; None for no judge at all.

    ``timeout_s`` bounds the check of one sentence. ``max_sentence_chars``: a longer sentence is checked in parts.
    ``extractor``, ``signals``, ``splitter`` and ``windowing`` replace the parts that ship with the package.
    """

    def __init__(
        self,
        scorer: PairScorer | None,
        *,
        extractor: ClaimExtractor | None = None,
        timeout_s: float = 5.0,
        max_sentence_chars: int = 4000,
        signals: Signals | None = None,
        splitter: Callable[[], SentenceSplitter] | None = None,
        windowing: Windowing | None = None,
    ) -> None:
        self._scorer = scorer
        self._timeout_s = timeout_s
        self._extractor = extractor or HeuristicExtractor()
        self._signals: Signals = signals or default_signals
        self._splitter = splitter or (lambda: IncrementalSplitter(max_chars=max_sentence_chars))
        self._windowing = windowing
        self._starting = asyncio.Lock()
        self.available = False
        """The judge is loaded and answers."""
        self.error: str | None = None if scorer is not None else "no judge is configured"
        """Why it is not available, once that is known."""

    @property
    def name(self) -> str:
        """Name and version of the judge; ``none`` if there is none."""
        return "none" if self._scorer is None else self._scorer.name

    async def start(self) -> None:
        """Load the judge. Idempotent and never raises: a failure leaves ``available`` False and says why in ``error``;
        it is not tried again."""
        async with self._starting:
            if self._scorer is None or self.available or self.error is not None:
                return
            try:
                await self._scorer.start()
            except JudgeError as error:
                self.error = str(error)
            except Exception as error:
                log.exception("the judge failed to load")
                self.error = f"{type(error).__name__}: {error}"
            else:
                self.available = True

    async def aclose(self) -> None:
        self.available = False
        if self._scorer is not None:
            await self._scorer.aclose()

    async def prepare(self, chunks: Sequence[Chunk]) -> EvidenceIndex:
        """Cut ``chunks`` into evidence, off the event loop. Loads the judge if that has not been tried yet."""
        await self.start()
        return await asyncio.to_thread(self._build, chunks)

    def reply(
        self,
        evidence: EvidenceIndex,
        *,
        thresholds: Thresholds,
        max_sources_per_claim: int = 5,
        max_claims: int | None = None,
    ) -> ReplyCheck:
        """Open the check of one reply. ``max_claims``: judge only so many, the first ones; the rest is reported."""
        adjudicator = (
            Adjudicator(self._scorer, evidence, self._signals, thresholds=thresholds, max_sources=max_sources_per_claim)
            if self._scorer is not None and self.available
            else None
        )
        return ReplyCheck(
            splitter=self._splitter(),
            extractor=self._extractor,
            adjudicator=adjudicator,
            has_sources=len(evidence) > 0,
            timeout_s=self._timeout_s,
            max_claims=max_claims,
        )

    def _build(self, chunks: Sequence[Chunk]) -> EvidenceIndex:
        scorer = self._scorer if self.available else None
        return build_index(
            chunks,
            splitter=self._splitter,
            count=_count_words if scorer is None else scorer.count_tokens,
            max_tokens=_UNLOADED_MAX_TOKENS if scorer is None else scorer.max_tokens,
            windowing=self._windowing,
        )


def _count_words(text: str) -> int:
    return len(text.split())
