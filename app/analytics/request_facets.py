"""Counts matching requests by value, such as by action or status, at a bounded cost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from app.analytics.rollup_queries import has_requests
from app.analytics.statistics import Statistics
from app.db.database import Database
from app.events.filters import EventFilter
from app.events.queries import EventQueries

MOST_COUNTED = 5_000
"""The maximum number of requests to read. Counts taken from the hourly statistics include all requests."""
_MOST_VALUES = 50
_NAMED = {"action": "action", "verdict": "verdict", "status": "status", "key": "key_prefix"}
_BANDS: Mapping[str, tuple[str, Sequence[float | None]]] = {
    "latency_ms": ("total_ms", (None, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, None)),
    "trust": ("trust_score", (None, 0.5, 0.7, 0.8, 0.9, None)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """The number of requests per value or per band. A band is a pair of bounds: the first is inclusive and the second
    is exclusive. Either can be None. ``complete`` means that all matching requests were counted."""

    counts: Mapping[Any, int]
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacets:
    """The facets of a list of requests. If ``complete`` is true, ``total`` is the number of matching requests.
    Otherwise, it is the number of requests counted."""

    total: int
    complete: bool
    named: Mapping[str, Facet] = field(default_factory=dict)
    bands: Mapping[str, Facet] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the facets in the admin API's format."""
        named = {
            name: {
                "complete": facet.complete,
                "values": [{"value": value, "count": count} for value, count in facet.counts.items()],
            }
            for name, facet in self.named.items()
        }
        bands = {
            name: {
                "complete": facet.complete,
                "bands": [{"min": low, "max": high, "count": count} for (low, high), count in facet.counts.items()],
            }
            for name, facet in self.bands.items()
        }
        return {"total": self.total, "complete": self.complete, **named, **bands}


async def request_facets(database: Database, filter: EventFilter) -> RequestFacets:
    """Count the requests that match ``filter``. Raises DatabaseUnavailableError."""
    names = [*_NAMED.values(), *(column for column, _ in _BANDS.values())]
    rows, complete = await EventQueries(database).newest(filter, names, MOST_COUNTED)
    found_values = zip(*rows, strict=True) if rows else ((),) * len(names)
    values = {
        name: [value for value in column if value is not None] for name, column in zip(names, found_values, strict=True)
    }
    found = RequestFacets(
        total=len(rows),
        complete=complete,
        named={
            name: Facet(counts=_largest(Counter(values[column])), complete=complete) for name, column in _NAMED.items()
        },
        bands={
            name: Facet(counts=_in_bands(values[column], edges), complete=complete)
            for name, (column, edges) in _BANDS.items()
        },
    )
    if complete or not has_requests(filter):
        return found
    stats = await Statistics(database).totals(filter, percentiles=False)
    exact_counts = {"action": stats.actions, "verdict": stats.verdicts, "status": stats.statuses}
    exact = {name: Facet(counts=_largest(all_of), complete=True) for name, all_of in exact_counts.items()}
    return RequestFacets(total=stats.requests, complete=True, named={**found.named, **exact}, bands=found.bands)


def _largest(counts: Counter[str]) -> dict[Any, int]:
    return dict((+counts).most_common(_MOST_VALUES))


def _in_bands(values: Sequence[float], edges: Sequence[float | None]) -> dict[Any, int]:
    return {
        (low, high): sum((low is None or value >= low) and (high is None or value < high) for value in values)
        for low, high in pairwise(edges)
    }
