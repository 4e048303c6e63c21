"""Prometheus metrics. Labels have few distinct values, so models, agents and keys are not used as labels."""

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
from judges.llm_types import LlmCall

_MULTIPROCESS: Any = multiprocess  # The module's functions have no type annotations.


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTotals:
    """The judge's counters since startup. ``queue_depth`` (in pairs) and ``cache_bytes`` are current values."""

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
    """The event writer's counters since startup. ``queue_depth`` and ``journal_bytes`` are current values."""

    queue_depth: int = 0
    journal_bytes: int = 0
    written: int = 0
    journaled: int = 0
    dropped: int = 0
    rejected: int = 0


class _BoundedLabel:
    """Limits the cardinality of a label. After ``limit`` distinct values, new values become ``other``."""

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
"""Seconds between two updates of the gauges that a worker publishes for scrapes of other workers."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metrics:
    """The gateway's Prometheus metrics. Each app has its own registry.

    With several workers, each process writes its values to files in ``PROMETHEUS_MULTIPROC_DIR``, which ``groundlane
    serve --workers`` sets. A scrape of any worker then returns the metrics of all workers.
    """

    def __init__(
        self,
        *,
        judge: Callable[[], JudgeTotals] = JudgeTotals,
        events: Callable[[], EventTotals] = EventTotals,
        before: Callable[[], None] = lambda: None,
        lag_s: float = 0.0,
    ) -> None:
        """Set the sources of the gauges. ``judge`` and ``events`` are called at each scrape. Before them, ``before`` is
        called, so that pending events are counted. ``lag_s`` is the maximum time, in seconds, that events stay pending
        in another worker."""
        self._multiprocess = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        self._registry = CollectorRegistry()
        if not self._multiprocess:
            ProcessCollector(registry=self._registry)
        self._judge, self._events, self._before, self._lag_s = judge, events, before, lag_s
        self._judge_before, self._events_before = JudgeTotals(), EventTotals()
        self._reason, self._category, self._kind = _BoundedLabel(), _BoundedLabel(), _BoundedLabel()
        self._api, self._outcome, self._why = _BoundedLabel(), _BoundedLabel(), _BoundedLabel()

        self._requests = self._counter(
            "requests", "Requests, whether governed or passed through", "api", "action", "verdict", "status"
        )
        self._request_seconds = self._histogram("request_seconds", "Request duration, from first to last byte", "api")
        self._upstream_seconds = self._histogram("upstream_seconds", "Time spent on the upstream reply", "api")
        self._judge_seconds = self._histogram("judge_seconds", "Time spent judging, per request", "api")
        self._sentences = self._counter("sentences", "Claims, and sentences without claims, by verdict", "label")
        self._unjudged = self._counter("unjudged", "Claims that could not be judged, by reason", "reason")
        of_decision = ("category", "action", "reason_code")
        self._decisions = self._counter("decisions", "Policy decisions", *of_decision)
        self._shadow = self._counter("shadow_decisions", "Decisions of policies in shadow mode", *of_decision)
        # These series are cached, because they are looked up on every request. There are only a few of them.
        self._took = cache(self._request_seconds.labels)
        self._upstream_took, self._judge_took = cache(self._upstream_seconds.labels), cache(self._judge_seconds.labels)
        self._regenerations = self._counter("regenerations", "Replies regenerated after a sentence failed", "api")
        self._upstream_errors = self._counter(
            "upstream_errors", "Upstream failures, including those followed by a successful retry", "kind"
        )
        self._keys_refused = self._counter("keys_refused", "Requests refused because of their gateway key", "reason")
        self._admin_tokens_wrong = self._counter(
            "admin_tokens_wrong", "Requests refused because of a wrong admin token"
        )
        self._dropped_fields = self._counter(
            "dropped_fields", "Fields of upstream replies left out under a grounding policy", "api", "field"
        )
        self._limits_alone = self._counter(
            "limits_not_shared", "Requests rate-limited per worker because Redis was unavailable"
        )
        self._llm_calls = self._counter("llm_calls", "LLM judge calls", "mode", "outcome")
        self._llm_seconds = self._histogram("llm_seconds", "Duration of LLM judge calls", "mode")
        self._llm_tokens = self._counter("llm_tokens", "LLM judge tokens", "kind")
        self._llm_cost = self._counter("llm_cost_usd", "Cost of LLM judge calls to models with known prices")
        self._alerts = self._counter("alerts", "Alerts whose state changed", "state")
        self._alert_messages = self._counter("alert_messages", "Attempts to send a message about an alert", "outcome")
        self._open_streams = self._gauge("open_streams", "Streamed replies in progress")
        self._judge_queue = self._gauge("judge_queue_depth", "Claim-passage pairs waiting for the judge")
        self._judge_cache = self._gauge("judge_cache_bytes", "Upper bound on the memory of the verdict cache")
        self._judge_counters = {
            "batches": self._counter("judge_batches", "Batches sent to the judge"),
            "pairs": self._counter("judge_pairs", "Pairs sent to the judge in batches"),
            "failed": self._counter("judge_failed", "Pairs in batches that the judge failed to score"),
            "cache_hits": self._counter("judge_cache_hits", "Pairs found in the verdict cache"),
            "cache_misses": self._counter("judge_cache_misses", "Pairs not found in the verdict cache"),
            "cache_evictions": self._counter("judge_cache_evictions", "Scores evicted from the verdict cache"),
            "overloaded": self._counter("judge_overloaded", "Pairs rejected because the judge's queue was full"),
        }
        self._events_queue = self._gauge("events_queue_depth", "Events waiting for the database")
        self._events_journal = self._gauge("events_journal_bytes", "Bytes in the journal waiting for the database")
        self._events_counters = {
            "written": self._counter("events_written", "Events written to the database"),
            "journaled": self._counter("events_journaled", "Events written to the journal file"),
            "dropped": self._counter(
                "events_dropped", "Events lost because neither database nor journal accepted them"
            ),
            "rejected": self._counter(
                "events_rejected", "Events set aside because the database rejected their contents"
            ),
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
        """Yield the counters that the event increments, each with its labels."""
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
        """Count an upstream failure: ``connect``, ``timeout``, ``status_4xx``, ``status_5xx`` or ``stream``."""
        self._upstream_errors.labels(self._kind(kind)).inc()

    def observe_key_refused(self, reason: str) -> None:
        """Count a request that was refused because of its key. ``reason`` is ``wrong`` (missing, unknown or revoked) or
        ``rate``."""
        self._keys_refused.labels(reason).inc()

    def observe_wrong_admin_token(self) -> None:
        """Count a request that was refused because of a wrong admin token."""
        self._admin_tokens_wrong.inc()

    def observe_dropped_field(self, api: str, field: str) -> None:
        """Count a reply field that was left out because it is not in the tables of known fields. ``field`` has only a
        small number of distinct values."""
        self._dropped_fields.labels(api, field).inc()

    def observe_alert(self, state: str) -> None:
        """Count an alert whose state changed to ``firing`` or ``resolved``."""
        self._alerts.labels(state).inc()

    def observe_alert_message(self, outcome: str) -> None:
        """Count an attempt to send a message about an alert: ``sent``, ``retried`` or ``failed``."""
        self._alert_messages.labels(outcome).inc()

    def observe_limit_alone(self) -> None:
        """Count a request whose rate limit was applied per worker instead of across all workers."""
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
        """With several workers, regularly publish the values of the judge and the event writer, so that scrapes of
        other workers include them."""
        while self._multiprocess:
            self._sample()
            await asyncio.sleep(_SAMPLED_S)

    async def scraped(self) -> bytes:
        """Like ``render``, but wait until every worker has counted all requests that have already ended."""
        if self._multiprocess:
            await asyncio.sleep(self._lag_s)
        return self.render()

    def render(self) -> bytes:
        """Format the metrics in Prometheus's text format. Serve the result with the content type
        ``prometheus_client.CONTENT_TYPE_LATEST``."""
        return generate_latest(self._collected())

    def readings(self) -> Mapping[str, float]:
        """Return the values of all metrics without labels, by name, summed over all workers."""
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
    """Remove the gauges of killed workers. Their counters remain valid, so they are kept."""
    for file in folder.glob("gauge_live*_*.db"):
        pid = int(file.stem.rsplit("_", 1)[-1])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            _MULTIPROCESS.mark_process_dead(pid, path=str(folder))
