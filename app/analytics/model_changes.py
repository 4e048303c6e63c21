"""Finds the models that came into use or fell out of use in a time range."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from app.analytics.usage import TokenTotals
from app.db.database import Database
from app.db.tables import requests
from app.events.filters import EventFilter
from app.events.sql_conditions import requests_matching

_LEAST = 5
"""A change is reported only if the model has at least this many requests in the two periods together, and would have
had at least this many while it wasn't used, judging by its share of the traffic. With fewer expected requests, the
model may be missing by chance."""

Usage = Mapping[datetime, TokenTotals]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChange:
    """A model's first request or, unless ``appeared``, its last one. ``ts`` is the time of that request."""

    ts: datetime
    model: str
    appeared: bool


async def model_changes(
    database: Database, filter: EventFilter, before: Usage, now: Usage, *, step_s: int, limit: int
) -> list[ModelChange]:
    """Return the newest ``limit`` changes among the requests that match ``filter``, newest first.

    ``now`` is the usage in the filter's time range, and ``before`` is the usage in the previous period. Both map the
    start of each step of ``step_s`` seconds to the usage in that step. Raises DatabaseUnavailableError.
    """
    found = sorted(changes_in(before, now), key=lambda change: change.ts, reverse=True)[:limit]
    return [await _exact(database, filter, change, timedelta(seconds=step_s)) for change in found]


def changes_in(before: Usage, now: Usage) -> Iterator[ModelChange]:
    """Yield the changes in ``now``. The time of a change is the start of its step.

    A model appeared if it is used in ``now`` but wasn't used in ``before``. A model disappeared if the time since its
    last use is longer than every earlier pause in its use. A change counts only if there were enough requests to other
    models while the model wasn't used.
    """
    steps = [*sorted(before.items()), *sorted(now.items())]
    requests = [usage.requests for _, usage in steps]
    for model in sorted({model for _, usage in steps for model in usage.models if model}):
        counts = [usage.models.get(model, 0) for _, usage in steps]
        used = [step for step, count in enumerate(counts) if count]
        first, last = used[0], used[-1]
        share = sum(counts) / sum(requests[first : last + 1])
        if sum(counts) < _LEAST:
            continue
        if first >= len(before) and share * sum(requests[:first]) >= _LEAST:
            yield ModelChange(ts=steps[first][0], model=model, appeared=True)
        pause = max((later - earlier for earlier, later in pairwise(used)), default=1)
        if last >= len(before) and len(steps) - last > pause and share * sum(requests[last + 1 :]) >= _LEAST:
            yield ModelChange(ts=steps[last][0], model=model, appeared=False)


async def _exact(database: Database, filter: EventFilter, change: ModelChange, step: timedelta) -> ModelChange:
    """Return ``change`` with the exact time of the first or last request."""
    since = max(change.ts, filter.since or change.ts)
    until = min(change.ts + step, filter.until or change.ts + step)
    query = requests_matching(replace(filter, model=change.model, since=since, until=until), requests.c.ts)
    order = requests.c.ts if change.appeared else requests.c.ts.desc()
    async with database.read() as connection:
        ts = (await connection.execute(query.order_by(order).limit(1))).scalar()
    return change if ts is None else replace(change, ts=ts)
