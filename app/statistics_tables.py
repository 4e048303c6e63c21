"""The tables of the numbers that are counted ahead, and the histogram of latencies in them.

The event log's writer adds to them in the transaction that stores the events; see ``app.events.tallies``.
"""

from bisect import bisect_left

HOUR, DAY = 3_600, 86_400
"""What ``step`` may be, in seconds: how much time a row covers from ``start`` on, in UTC."""
NONE = ""
"""What stands in a key for an agent, a model or a reason code that there is none of, and for all policies."""

BOUNDS_MS = tuple(2.0**power for power in range(-4, 17))
"""Upper ends of the bins of a histogram, each twice the one before; one more bin holds what is above the last."""
BINS = range(len(BOUNDS_MS) + 1)

PARTS = ("total", "upstream", "judge", "gateway")
"""What the time of a request went to. ``gateway`` is what is left of the total without upstream and judge."""
VERDICTS = ("supported", "has_contradictions", "has_unverifiable", "no_claims", "no_sources", "not_checked")
STATUSES = ("completed", "blocked", "cancelled", "incomplete", "upstream_error", "failed")


def bin_of(latency_ms: float) -> int:
    """The bin that a latency falls into; an upper end belongs to its bin."""
    return bisect_left(BOUNDS_MS, latency_ms)
