"""Prometheus metrics, one method for each thing that happens. Labels have few values: no model, agent or key is one."""

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess
from prometheus_client.process_collector import ProcessCollector

from app.events.records import RequestEvent, RequestRow
from judges.types import LlmCall

_MULTIPROCESS: Any = multiprocess  # its functions carry no types


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTotals:
    """Where the judge stands: pairs that wait and bytes of scores kept now; the rest counts since the start."""

    queue_depth: int = 0
    cache_bytes: int = 0
    batches: int = 0
    pairs: int = 0
    failed: int = 0
    overloaded: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_evictions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTotals:
    """Where the event writer stands: events and journal bytes that wait now; the rest counts events since the start."""

    queue_depth: int = 0
    journal_bytes: int = 0
    written: int = 0
    journaled: int = 0
    dropped: int = 0
    rejected: int = 0


class _Labels:
    """Keeps a label's values few: what comes after the first ``limit`` distinct ones counts as ``other``."""

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._seen: set[str] = set()

    def __call__(self, value: str | None) -> str:
        name = value or "none"
        if name not in self._seen:
            if len(self._seen) >= self._limit:
                return "other"
            self._seen.add(name)
        return name


_SAMPLED_S = 0.25
"""How old the numbers may be that another worker finds."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metrics:
    """The gateway's Prometheus metrics, each app with a registry of its own.

    With several workers each process writes its numbers to files in ``PROMETHEUS_MULTIPROC_DIR`` (``groundlane serve
    --workers`` sets it) and whichever worker is scraped answers for all.
    """

    def __init__(
        self,
        *,
        judge: Callable[[], JudgeTotals] = JudgeTotals,
        events: Callable[[], EventTotals] = EventTotals,
        before: Callable[[], None] = lambda: None,
        lag_s: float = 0.0,
    ) -> None:
        """``judge`` and ``events`` are asked where they stand at each scrape. ``before`` each scrape, what waits to be
        counted may be; ``lag_s``: how long it may wait in another worker."""
        self._multiprocess = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        self._registry = CollectorRegistry()
        if not self._multiprocess:
            ProcessCollector(registry=self._registry)
        self._judge, self._events, self._before, self._lag_s = judge, events, before, lag_s
        self._judge_before, self._events_before = JudgeTotals(), EventTotals()
        self._reason, self._category, self._kind = _Labels(), _Labels(), _Labels()
        self._api, self._outcome, self._why = _Labels(), _Labels(), _Labels()

        self._requests = self._counter("requests", "Requests, governed or not", "api", "action", "verdict", "status")
        self._request_seconds = self._histogram("request_seconds", "Whole request, first to last byte", "api")
        self._upstream_seconds = self._histogram("upstream_seconds", "Time spent on the upstream's reply", "api")
        self._judge_seconds = self._histogram("judge_seconds", "Time a request spent with the judge", "api")
        self._sentences = self._counter("sentences", "Claims and claim-less sentences by verdict", "label")
        self._unjudged = self._counter("unjudged", "Claims without a verdict of the judge, by reason", "reason")
        of_decision = ("category", "action", "reason_code")
        self._decisions = self._counter("decisions", "Decisions", *of_decision)
        self._shadow = self._counter("shadow_decisions", "Decisions of policies that were not in force", *of_decision)
        # Looked up by every request, and of few labels each.
        self._took = cache(self._request_seconds.labels)
        self._upstream_took, self._judge_took = cache(self._upstream_seconds.labels), cache(self._judge_seconds.labels)
        self._regenerations = self._counter("regenerations", "Times an upstream was asked to go on anew", "api")
        self._upstream_errors = self._counter("upstream_errors", "Failures of the upstream", "kind")
        self._keys_refused = self._counter("keys_refused", "Calls refused for their gateway key", "reason")
        self._limits_alone = self._counter("limits_not_shared", "Requests whose limit a worker counted for itself")
        self._llm_calls = self._counter("llm_calls", "Calls to LLM judges", "mode", "outcome")
        self._llm_seconds = self._histogram("llm_seconds", "Time of a call to an LLM judge", "mode")
        self._llm_tokens = self._counter("llm_tokens", "Tokens of LLM judges", "kind")
        self._llm_cost = self._counter("llm_cost_usd", "Cost of LLM judges, where prices are known")
        self._open_streams = self._gauge("open_streams", "Streamed replies in progress")
        self._judge_queue = self._gauge("judge_queue_depth", "Pairs that wait for the judge")
        self._judge_cache = self._gauge("judge_cache_bytes", "Memory of the scores kept, at most")
        self._judge_counters = {
            "batches": self._counter("judge_batches", "Batches that went to the judge"),
            "pairs": self._counter("judge_pairs", "Pairs in those batches"),
            "failed": self._counter("judge_failed", "Pairs of batches that the judge failed to score"),
            "cache_hits": self._counter("judge_cache_hits", "Pairs that the verdict cache held"),
            "cache_misses": self._counter("judge_cache_misses", "Pairs that the verdict cache did not hold"),
            "cache_evictions": self._counter("judge_cache_evictions", "Scores that left the cache to make room"),
            "overloaded": self._counter("judge_overloaded", "Pairs refused: the judge's queue was full"),
        }
        self._events_queue = self._gauge("events_queue_depth", "Events that wait for the database")
        self._events_journal = self._gauge("events_journal_bytes", "Bytes in the journal that wait for the database")
        self._events_counters = {
            "written": self._counter("events_written", "Events written to the database"),
            "journaled": self._counter("events_journaled", "Events that went to the journal file"),
            "dropped": self._counter("events_dropped", "Events lost: neither database nor journal took them"),
            "rejected": self._counter("events_rejected", "Events set aside: the database refused what is in them"),
        }

    def observe_requests(self, events: Iterable[RequestEvent]) -> None:
        """Count finished requests, with their decisions and claims."""
        counts: defaultdict[tuple[Any, ...], int] = defaultdict(int)
        for event in events:
            self._observe_times(event.request)
            for series in self._series(event):
                counts[series] += 1
        for (counter, *labels), count in counts.items():
            counter.labels(*labels).inc(count)

    def _observe_times(self, row: RequestRow) -> None:
        api = self._api(row.api)
        self._took(api).observe(row.total_ms / 1e3)
        if row.upstream_ms is not None:
            self._upstream_took(api).observe(row.upstream_ms / 1e3)
        if row.judge_ms is not None:
            self._judge_took(api).observe(row.judge_ms / 1e3)
        if row.regenerations:
            self._regenerations.labels(api).inc(row.regenerations)

    def _series(self, event: RequestEvent) -> Iterator[tuple[Any, ...]]:
        """What the event adds one to, each a counter and its labels."""
        row = event.request
        yield self._requests, self._api(row.api), row.action, self._outcome(row.verdict), self._outcome(row.status)
        for claim in event.claims:
            yield self._sentences, claim.label
            if claim.reason is not None:
                yield self._unjudged, self._why(claim.reason)
        for decisions, counter in ((event.decisions, self._decisions), (event.shadow, self._shadow)):
            for decision in decisions:
                yield counter, self._category(decision.category), decision.action, self._reason(decision.reason_code)

    def observe_upstream_error(self, kind: str) -> None:
        """Count a failure of the upstream: ``connect``, ``timeout``, ``status_4xx``, ``status_5xx`` or ``stream``."""
        self._upstream_errors.labels(self._kind(kind)).inc()

    def observe_key_refused(self, reason: str) -> None:
        """Count a call that was refused for its key: ``wrong`` (none, unknown or revoked) or ``rate``."""
        self._keys_refused.labels(reason).inc()

    def observe_limit_alone(self) -> None:
        """Count a request whose rate limit should have been counted for all workers and was not."""
        self._limits_alone.inc()

    def observe_llm_call(self, call: LlmCall) -> None:
        """Count a call to an LLM judge."""
        self._llm_calls.labels(call.mode, call.outcome).inc()
        self._llm_seconds.labels(call.mode).observe(call.latency_ms / 1e3)
        self._llm_tokens.labels("prompt").inc(call.prompt_tokens)
        self._llm_tokens.labels("completion").inc(call.completion_tokens)
        self._llm_cost.inc(call.cost_usd or 0.0)

    @contextmanager
    def open_stream(self) -> Iterator[None]:
        """Count a streamed reply as open for as long as the block runs."""
        self._open_streams.inc()
        try:
            yield
        finally:
            self._open_streams.dec()

    async def keep_sampled(self) -> None:
        """With several workers, note now and then where judge and events stand, for whichever worker is scraped."""
        while self._multiprocess:
            self._sample()
            await asyncio.sleep(_SAMPLED_S)

    async def scraped(self) -> bytes:
        """``render``, once all that has ended by now is counted, in whichever worker it was."""
        if self._multiprocess:
            await asyncio.sleep(self._lag_s)
        return self.render()

    def render(self) -> bytes:
        """The exposition in Prometheus' text format; serve it with ``prometheus_client.CONTENT_TYPE_LATEST``."""
        return generate_latest(self._collected())

    def readings(self) -> Mapping[str, float]:
        """Where each number without labels stands, by its name in the exposition; of all workers together."""
        found = (sample for metric in self._collected().collect() for sample in metric.samples)
        return {sample.name: sample.value for sample in found if not sample.labels}

    def _collected(self) -> CollectorRegistry:
        self._before()
        self._sample()
        if not self._multiprocess:
            return self._registry
        _forget_dead_workers(Path(self._multiprocess))
        registry = CollectorRegistry()
        _MULTIPROCESS.MultiProcessCollector(registry, path=self._multiprocess)
        return registry

    def _sample(self) -> None:
        judge, events = self._judge(), self._events()
        self._judge_queue.set(judge.queue_depth)
        self._judge_cache.set(judge.cache_bytes)
        self._events_queue.set(events.queue_depth)
        self._events_journal.set(events.journal_bytes)
        for name, counter in self._judge_counters.items():
            counter.inc(getattr(judge, name) - getattr(self._judge_before, name))
        for name, counter in self._events_counters.items():
            counter.inc(getattr(events, name) - getattr(self._events_before, name))
        self._judge_before, self._events_before = judge, events

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(f"groundlane_{name}", help, labels, registry=self._registry)

    def _gauge(self, name: str, help: str) -> Gauge:
        return Gauge(f"groundlane_{name}", help, registry=self._registry, multiprocess_mode="livesum")

    def _histogram(self, name: str, help: str, *labels: str, buckets: Sequence[float] = _SECONDS) -> Histogram:
        return Histogram(f"groundlane_{name}", help, labels, buckets=buckets, registry=self._registry)


def _forget_dead_workers(folder: Path) -> None:
    """A worker that was killed leaves its gauges behind; its counters stay right and are kept."""
    for file in folder.glob("gauge_live*_*.db"):
        pid = int(file.stem.rsplit("_", 1)[-1])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            _MULTIPROCESS.mark_process_dead(pid, path=str(folder))
