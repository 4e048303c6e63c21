"""Request and decision statistics, computed from event rows or from rollups."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Any

from app.db.rollup_tables import BINS, BOUNDS_MS

PERCENT = (50, 95, 99)


@dataclass(slots=True, kw_only=True)
class LatencyStats:
    """The count, sum and maximum of latencies, in milliseconds."""

    count: int = 0
    sum_ms: float = 0.0
    max_ms: float = 0.0

    def add(self, count: int | None, sum_ms: float | None, max_ms: float | None) -> None:
        self.count += int(count or 0)
        self.sum_ms += sum_ms or 0.0
        self.max_ms = max(self.max_ms, max_ms or 0.0)

    @property
    def mean_ms(self) -> float | None:
        return self.sum_ms / self.count if self.count else None


@dataclass(slots=True, kw_only=True)
class RequestStats:
    """Statistics on requests.

    ``times`` contains the latencies by part: ``total``, ``upstream``, ``judge``, and ``gateway``, which is the total
    minus ``upstream`` and ``judge``. ``latency_ms`` contains the percentiles by part (``p50``, ``p95``, ``p99``,
    ``max``), if requested. A part for which no request has a value is left out of both.
    """

    requests: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    trust_count: int = 0
    trust_sum: float = 0.0
    times: dict[str, LatencyStats] = field(default_factory=dict)
    latency_ms: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def trust_score(self) -> float | None:
        """The mean trust score of the requests that have a score, or None if no request has one."""
        return self.trust_sum / self.trust_count if self.trust_count else None

    def rate(self, action: str) -> float | None:
        """Return the share of requests with this action, from 0 to 1, or None if there are no requests."""
        return share(self.actions[action], self.requests)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that the admin API returns."""
        stats: dict[str, Any] = {
            "requests": self.requests,
            "actions": dict(self.actions),
            "verdicts": dict(self.verdicts),
            "statuses": dict(self.statuses),
            "rates": {action: self.rate(action) for action in ("warn", "block")},
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "trust_score": None if self.trust_score is None else round(self.trust_score, 6),
            "mean_ms": {
                part: round(times.mean_ms, 3) for part, times in self.times.items() if times.mean_ms is not None
            },
        }
        return stats | ({"latency_ms": self.latency_ms} if self.latency_ms else {})


@dataclass(slots=True, kw_only=True)
class DecisionStats:
    """Statistics on a group of decisions. ``of`` contains the column values that all decisions in the group share."""

    of: Mapping[str, Any]
    decisions: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    reason_codes: Counter[str] = field(default_factory=Counter)
    latency_ms: dict[str, float] = field(default_factory=dict)

    def add(self, action: str, reason_code: str | None, count: int) -> None:
        self.decisions += count
        self.actions[action] += count
        if reason_code:
            self.reason_codes[reason_code] += count

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that the admin API returns."""
        return {
            **self.of,
            "decisions": self.decisions,
            "actions": dict(self.actions),
            "reason_codes": dict(self.reason_codes),
            "latency_ms": self.latency_ms,
        }


def share(count: int, of: int) -> float | None:
    return round(count / of, 6) if of else None


def percentiles(bins: Sequence[int | None], largest: float) -> dict[str, float]:
    """Return percentiles by name, estimated from the bins of a histogram. The result is empty if there are no values.

    Within a bin, values are assumed to be denser towards the neighbouring bin with the higher count. For typical
    latencies, the error is a few percent. The error never exceeds the width of a bin.
    """
    counts = [int(count or 0) for count in bins]
    total = sum(counts)
    if not total:
        return {}
    found = {f"p{percent}": min(_at(counts, ceil(total * percent / 100)), largest) for percent in PERCENT}
    return {name: round(value, 3) for name, value in (found | {"max": largest}).items()}


def _at(counts: Sequence[int], rank: int) -> float:
    before = 0
    for bin in BINS:
        if before + counts[bin] >= rank:
            part = _part(counts, bin, rank - before)
            upper = BOUNDS_MS[bin] if bin < len(BOUNDS_MS) else 2 * BOUNDS_MS[-1]
            return float(upper * (part if bin == 0 else 2 ** (part - 1)))
        before += counts[bin]
    raise AssertionError("the rank exceeds the number of values")


def _part(counts: Sequence[int], bin: int, rank: int) -> float:
    """Return the position of a rank within its bin, from 0 to 1. The density is assumed to change linearly within the
    bin."""
    count = counts[bin]
    left, right = (counts[beside] if beside in BINS else 0 for beside in (bin - 1, bin + 1))
    slope = max(-2 * count, min(2 * count, (right - left) / 2))
    start = count - slope / 2
    return min(1.0, 2 * rank / (start + sqrt(max(0.0, start * start + 2 * slope * rank))))
