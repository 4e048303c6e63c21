"""The cross-encoder as used in a process, with a cache and batching in front of the model, and the checker that uses
it."""

from app.observability import JudgeTotals
from app.settings import Settings
from judges.checker import GroundingChecker
from judges.cross_encoder import spec_languages
from judges.cross_encoder.batching import BatchingScorer
from judges.cross_encoder.score_cache import CachingScorer
from judges.llm import LlmJudge
from judges.protocols import PairScorer


class JudgeStack:
    """``backend`` with the queue limit and cache from ``settings``. ``backend`` is None if there is no
    cross-encoder."""

    def __init__(self, settings: Settings, backend: PairScorer | None) -> None:
        self._batcher = None if backend is None else BatchingScorer(backend, queue_limit=settings.judge_queue_limit)
        self._cache: CachingScorer | None = None
        if self._batcher is not None and settings.judge_cache_mb > 0:
            self._cache = CachingScorer(self._batcher, max_bytes=settings.judge_cache_mb * 1024 * 1024)

    @property
    def scorer(self) -> PairScorer | None:
        """The scorer to use, or None if there is no cross-encoder."""
        return self._batcher if self._cache is None else self._cache

    def totals(self) -> JudgeTotals:
        """Return the counters for the metrics."""
        batcher, cache = self._batcher, self._cache
        return JudgeTotals(
            queue_depth=0 if batcher is None else batcher.queue_depth,
            batches=0 if batcher is None else batcher.batches,
            pairs=0 if batcher is None else batcher.pairs,
            failed=0 if batcher is None else batcher.failed,
            overloaded=0 if batcher is None else batcher.overloaded,
            cache_bytes=0 if cache is None else cache.nbytes,
            cache_hits=0 if cache is None else cache.hits,
            cache_misses=0 if cache is None else cache.misses,
            cache_evictions=0 if cache is None else cache.evictions,
        )


def open_checker(settings: Settings, scorer: PairScorer | None, llm: LlmJudge, *, stands_in: bool) -> GroundingChecker:
    """Build the checker that uses ``scorer`` and ``llm``. ``stands_in`` means that the scorer is not the one in the
    settings, so the settings' languages don't apply to it."""
    return GroundingChecker(
        scorer,
        llm=llm,
        languages=None if stands_in else spec_languages(settings.judge),
        timeout_s=settings.judge_timeout_ms / 1e3,
        max_sentence_chars=settings.max_sentence_chars,
    )
