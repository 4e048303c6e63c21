"""The gateway's statistics: requests, their outcomes and latencies, and policy decisions."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from app.analytics.live_counts import (
    By,
    Group,
    count_decisions,
    count_requests,
    decision_percentiles,
    names_of_policies,
    request_percentiles,
)
from app.analytics.rollup_queries import (
    DecisionRollups,
    RequestRollups,
    has_decisions,
    has_requests,
    more_than,
    spans,
)
from app.db.database import Database
from app.db.rollup_tables import DAY, HOUR, PARTS
from app.events.filters import EventFilter
from app.events.rollups.request_stats import DecisionStats, LatencyStats, RequestStats

__all__ = ["DecisionStats", "LatencyStats", "RequestStats", "Statistics"]

_MOST_GROUPS = 100
_FEW = 5_000
"""Up to this number of requests, counting rows is as fast as reading rollups."""


class Statistics:
    """Statistics of the event log in a database. All methods raise DatabaseUnavailableError.

    Filters by time, agent, model, action and policy use hourly and daily rollups, at a cost independent of the number
    of requests. Partial hours at the ends of the time range are counted row by row. With any other filter, everything
    is counted row by row. Counts and sums are exact. Percentiles are exact if the time range has at most ``few``
    requests. Otherwise they are estimated from hourly histograms, whose bins double in size.
    """

    def __init__(self, database: Database, *, few: int = _FEW) -> None:
        self._database, self._few = database, few

    async def totals(self, filter: EventFilter, *, percentiles: bool = True) -> RequestStats:
        """Compute statistics over all matching requests, optionally with percentiles."""
        return (await self._counted(filter, None, percentiles=percentiles)).get(None, RequestStats())

    async def groups(
        self, filter: EventFilter, by: Literal["agent", "model", "policy"], *, brief: bool = False
    ) -> list[tuple[str | None, RequestStats]]:
        """Group the requests by ``agent``, ``model`` or ``policy`` (by id). A request counts once for every policy that
        evaluated it. Return at most a hundred groups, largest first. With ``brief``, only counts, actions, trust and
        total time are computed."""
        found = await self._counted(filter, by, brief=brief)
        largest = sorted(found.items(), key=lambda item: (-item[1].requests, item[0] or ""))[:_MOST_GROUPS]
        return [(None if key is None else str(key), numbers) for key, numbers in largest]

    async def buckets(
        self, filter: EventFilter, seconds: int, start: datetime, end: datetime
    ) -> list[tuple[datetime, RequestStats]]:
        """Group the requests by time, from ``start`` to ``end`` in steps of ``seconds``. Includes empty steps but no
        percentiles. A step must be a minute, a day, or a number of hours that divides 24. Steps are aligned to
        UTC."""
        found = await self._counted(replace(filter, since=start, until=end), seconds, percentiles=False)
        first, last = (int(time.timestamp()) // seconds * seconds for time in (start, end))
        steps = range(first, last + (seconds if int(end.timestamp()) % seconds else 0), seconds)
        return [(datetime.fromtimestamp(at, UTC), found.get(at, RequestStats())) for at in steps]

    async def phases(self, filter: EventFilter) -> list[DecisionStats]:
        """Group the decisions by category and phase, most frequent first, with their actions, reason codes and
        latencies. ``filter.action`` applies to the decision's action."""
        return await self._decided(filter, ("category", "phase"))

    async def policies(self, filter: EventFilter) -> list[DecisionStats]:
        """Group the decisions by policy (id and name) and ``shadow``. Return at most a hundred groups."""
        return (await self._decided(filter, ("policy_id", "shadow")))[:_MOST_GROUPS]

    async def _counted(
        self, filter: EventFilter, by: By, *, brief: bool = False, percentiles: bool = True
    ) -> dict[Group, RequestStats]:
        dialect = self._database.dialect
        step = by if isinstance(by, int) else DAY
        async with self._database.read() as connection:
            if step % HOUR or not has_requests(filter) or not await more_than(connection, filter, self._few):
                found: dict[Group, RequestStats] = {}
                await count_requests(connection, dialect, filter, by, found)
                if percentiles:
                    await request_percentiles(connection, dialect, filter, by, found)
                return found
            parts = ("total",) if brief else PARTS
            rollups = RequestRollups(connection, by, parts=parts, brief=brief, percentiles=percentiles)
            for span in spans(filter, largest=HOUR if step % DAY else DAY):
                if span.step is None:
                    await count_requests(connection, dialect, span.filter, by, rollups.found)
                    await rollups.touch(span.filter)
                else:
                    await rollups.add(span, span.step)
        return rollups.stats()

    async def _decided(self, filter: EventFilter, names: Sequence[str]) -> list[DecisionStats]:
        async with self._database.read() as connection:
            if not has_decisions(filter) or not await more_than(connection, filter, self._few):
                found: dict[tuple[object, ...], DecisionStats] = {}
                await count_decisions(connection, filter, names, found)
                await decision_percentiles(connection, filter, names, found)
                called = await names_of_policies(connection, filter) if "policy_id" in names else {}
            else:
                rollups = DecisionRollups(connection, names)
                for span in spans(filter):
                    if span.step is None:
                        await count_decisions(connection, span.filter, names, rollups.found)
                        await rollups.touch(span.filter)
                    else:
                        await rollups.add(span, span.step)
                found, called = rollups.stats(), rollups.called
        if "policy_id" in names:
            for decided in found.values():
                decided.of = {**decided.of, "policy_name": called.get(decided.of["policy_id"])}
        return sorted(found.values(), key=lambda each: (-each.decisions, *(str(value) for value in each.of.values())))
