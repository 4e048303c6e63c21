"""What the gateway did, in numbers: how many requests, what became of them, how long it took, what policies decided."""

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
from app.events.queries import EventFilter
from app.events.rollups.request_stats import DecisionStats, LatencyStats, RequestStats

__all__ = ["DecisionStats", "LatencyStats", "RequestStats", "Statistics"]

_MOST_GROUPS = 100
_FEW = 5_000
"""As many requests are counted one by one as fast as it takes to add up what was counted ahead."""


class Statistics:
    """Numbers of one database. All raise DatabaseUnavailableError.

    Requests and decisions are counted ahead by hour and by day, as ``app.events.rollups.rollup_update`` does; from that
    are answered filters by time, agent, model, action and policy, at the same cost however many requests there were.
    What is left of the time before and after whole hours is counted row by row, and so is all of it with another
    filter. Counts and sums are exact. Percentiles are where there were no more than ``few`` requests in the time
    asked about; else they are read from histograms, of all hours that the time touches, whose bins double.
    """

    def __init__(self, database: Database, *, few: int = _FEW) -> None:
        self._database, self._few = database, few

    async def totals(self, filter: EventFilter) -> RequestStats:
        """All requests that match, as one, with percentiles."""
        return (await self._counted(filter, None)).get(None, RequestStats())

    async def groups(
        self, filter: EventFilter, by: Literal["agent", "model", "policy"], *, brief: bool = False
    ) -> list[tuple[str | None, RequestStats]]:
        """The requests by ``agent``, by ``model``, or by the id of each ``policy`` that decided on them (a request
        counts for all of them); those with the most first, at most a hundred. ``brief``: all that is needed is how many
        there were, what became of them, their trust, and the whole time that they took."""
        found = await self._counted(filter, by, brief=brief)
        largest = sorted(found.items(), key=lambda item: (-item[1].requests, item[0] or ""))[:_MOST_GROUPS]
        return [(None if key is None else str(key), numbers) for key, numbers in largest]

    async def buckets(
        self, filter: EventFilter, seconds: int, start: datetime, end: datetime
    ) -> list[tuple[datetime, RequestStats]]:
        """The requests by time, from ``start`` to ``end`` in steps of ``seconds``, empty steps among them, without
        percentiles. Steps are a minute, or whole hours that a day can be divided by, or a day; they begin in UTC."""
        found = await self._counted(replace(filter, since=start, until=end), seconds, percentiles=False)
        first, last = (int(time.timestamp()) // seconds * seconds for time in (start, end))
        steps = range(first, last + (seconds if int(end.timestamp()) % seconds else 0), seconds)
        return [(datetime.fromtimestamp(at, UTC), found.get(at, RequestStats())) for at in steps]

    async def phases(self, filter: EventFilter) -> list[DecisionStats]:
        """The decisions by category and phase: actions, reason codes, and what deciding took. Those with the most
        first. ``filter.action`` is that of the decision."""
        return await self._decided(filter, ("category", "phase"))

    async def policies(self, filter: EventFilter) -> list[DecisionStats]:
        """The decisions by policy (id and name), and by whether it was in ``shadow``; at most a hundred."""
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
            tallied = RequestRollups(connection, by, parts=parts, brief=brief, percentiles=percentiles)
            for span in spans(filter, largest=HOUR if step % DAY else DAY):
                if span.step is None:
                    await count_requests(connection, dialect, span.filter, by, tallied.found)
                    await tallied.touch(span.filter)
                else:
                    await tallied.add(span, span.step)
        return tallied.numbers()

    async def _decided(self, filter: EventFilter, names: Sequence[str]) -> list[DecisionStats]:
        async with self._database.read() as connection:
            if not has_decisions(filter) or not await more_than(connection, filter, self._few):
                found: dict[tuple[object, ...], DecisionStats] = {}
                await count_decisions(connection, filter, names, found)
                await decision_percentiles(connection, filter, names, found)
                called = await names_of_policies(connection, filter) if "policy_id" in names else {}
            else:
                tallied = DecisionRollups(connection, names)
                for span in spans(filter):
                    if span.step is None:
                        await count_decisions(connection, span.filter, names, tallied.found)
                        await tallied.touch(span.filter)
                    else:
                        await tallied.add(span, span.step)
                found, called = tallied.decided(), tallied.called
        if "policy_id" in names:
            for decided in found.values():
                decided.of = {**decided.of, "policy_name": called.get(decided.of["policy_id"])}
        return sorted(found.values(), key=lambda each: (-each.decisions, *(str(value) for value in each.of.values())))
