"""The cross-encoder of a process, with a cache and batching in front of the model, and the checker that uses it."""

from app.observability import JudgeTotals
from app.settings import Settings
from judges.checker import GroundingChecker
from judges.cross_encoder import spec_languages
from judges.cross_encoder.batching import BatchingScorer
from judges.cross_encoder.cascade import CascadeScorer
from judges.cross_encoder.score_cache import CachingScorer
from judges.llm import LlmJudge
from judges.protocols import PairScorer


class JudgeStack:
    """Wraps ``backend`` with a queue limit and a cache, as set in ``settings``. In a cascade, every judge has a
    separate queue and cache. ``backend`` is None if there is no cross-encoder."""

    def __init__(self, settings: Settings, backend: PairScorer | None) -> None:
        self._queue_limit = settings.judge_queue_limit
        self._cache_bytes = settings.judge_cache_mb * 1024 * 1024
        self._batchers: list[BatchingScorer] = []
        self._caches: list[CachingScorer] = []
        self.scorer = None if backend is None else self._wrap(backend)
        """The scorer to use, or None if there is no cross-encoder."""

    def _wrap(self, backend: PairScorer) -> PairScorer:
        if isinstance(backend, CascadeScorer):
            return backend.with_stages(self._wrap)
        self._batchers.append(batcher := BatchingScorer(backend, queue_limit=self._queue_limit))
        if not self._cache_bytes:
            return batcher
        self._caches.append(cache := CachingScorer(batcher, max_bytes=self._cache_bytes))
        return cache

    def totals(self) -> JudgeTotals:
        """Return the counters for the metrics."""
        batchers, caches = self._batchers, self._caches
        return JudgeTotals(
            queue_depth=sum(batcher.queue_depth for batcher in batchers),
            batches=sum(batcher.batches for batcher in batchers),
            pairs=sum(batcher.pairs for batcher in batchers),
            failed=sum(batcher.failed for batcher in batchers),
            overloaded=sum(batcher.overloaded for batcher in batchers),
            cache_bytes=sum(cache.nbytes for cache in caches),
            cache_hits=sum(cache.hits for cache in caches),
            cache_misses=sum(cache.misses for cache in caches),
            cache_evictions=sum(cache.evictions for cache in caches),
        )


def open_checker(settings: Settings, scorer: PairScorer | None, llm: LlmJudge, *, stands_in: bool) -> GroundingChecker:
    """Build the checker that uses ``scorer`` and ``llm``. ``stands_in`` means that the scorer replaces the one in the
    settings, so the configured languages don't apply to it."""
    return GroundingChecker(
        scorer,
        llm=llm,
        languages=None if stands_in else spec_languages(settings.judge),
        timeout_s=settings.judge_timeout_ms / 1e3,
        max_sentence_chars=settings.max_sentence_chars,
    )
