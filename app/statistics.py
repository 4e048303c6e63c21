"""What the gateway did, in numbers: how many requests, what became of them, how long it took, what policies decided."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from app.db import Database
from app.events.counting import (
    By,
    Group,
    count_decisions,
    count_requests,
    decision_percentiles,
    names_of_policies,
    request_percentiles,
)
from app.events.numbers import Decided, Numbers, Times
from app.events.queries import EventFilter
from app.events.tallied import (
    about,
    has_decisions,
    has_requests,
    spans,
    tallied_decision_percentiles,
    tallied_decisions,
    tallied_names,
    tallied_request_percentiles,
    tallied_requests,
)
from app.statistics_tables import DAY, HOUR, PARTS

__all__ = ["Decided", "Numbers", "Statistics", "Times"]

_MOST_GROUPS = 100
_FEW = 5_000
"""As many requests are counted one by one as fast as it takes to add up what was counted ahead."""


class Statistics:
    """Numbers of one database. All raise DatabaseUnavailableError.

    Requests and decisions are counted ahead by hour and by day, as ``app.events.tallies`` does; from that are answered
    filters by time, agent, model, action and policy, at the same cost however many requests there were. What is left
    of the time before and after whole hours is counted row by row, and so is all of it with another filter. Counts and
    sums are exact. Percentiles are where there were no more than ``few`` requests in the time asked about; else they
    are read from histograms, of all hours that the time touches, whose bins double.
    """

    def __init__(self, database: Database, *, few: int = _FEW) -> None:
        self._database, self._few = database, few

    async def totals(self, filter: EventFilter) -> Numbers:
        """All requests that match, as one, with percentiles."""
        return (await self._counted(filter, None)).get(None, Numbers())

    async def groups(
        self, filter: EventFilter, by: Literal["agent", "model", "policy"], *, parts: Sequence[str] = PARTS
    ) -> list[tuple[str | None, Numbers]]:
        """The requests by ``agent``, by ``model``, or by the id of each ``policy`` that decided on them (a request
        counts for all of them); those with the most first, at most a hundred. ``parts``: of the time that requests
        take, those that are needed."""
        found = await self._counted(filter, by, parts=parts)
        largest = sorted(found.items(), key=lambda item: (-item[1].requests, item[0] or ""))[:_MOST_GROUPS]
        return [(None if key is None else str(key), numbers) for key, numbers in largest]

    async def buckets(
        self, filter: EventFilter, seconds: int, start: datetime, end: datetime
    ) -> list[tuple[datetime, Numbers]]:
        """The requests by time, from ``start`` to ``end`` in steps of ``seconds``, empty steps among them, without
        percentiles. Steps are a minute, or whole hours that a day can be divided by, or a day; they begin in UTC."""
        found = await self._counted(replace(filter, since=start, until=end), seconds, parts=())
        first, last = (int(time.timestamp()) // seconds * seconds for time in (start, end))
        steps = range(first, last + (seconds if int(end.timestamp()) % seconds else 0), seconds)
        return [(datetime.fromtimestamp(at, UTC), found.get(at, Numbers())) for at in steps]

    async def phases(self, filter: EventFilter) -> list[Decided]:
        """The decisions by category and phase: actions, reason codes, and what deciding took. Those with the most
        first. ``filter.action`` is that of the decision."""
        return await self._decided(filter, ("category", "phase"))

    async def policies(self, filter: EventFilter) -> list[Decided]:
        """The decisions by policy (id and name), and by whether it was in ``shadow``; at most a hundred."""
        found = (await self._decided(filter, ("policy_id", "shadow")))[:_MOST_GROUPS]
        async with self._database.read() as connection:
            called = await (tallied_names if has_decisions(filter) else names_of_policies)(connection, filter)
        for decided in found:
            decided.of = {**decided.of, "policy_name": called.get(decided.of["policy_id"])}
        return found

    async def _counted(self, filter: EventFilter, by: By, *, parts: Sequence[str] = PARTS) -> dict[Group, Numbers]:
        found: dict[Group, Numbers] = {}
        dialect = self._database.dialect
        step = by if isinstance(by, int) else DAY
        async with self._database.read() as connection:
            if step % HOUR or not has_requests(filter) or await about(connection, filter) <= self._few:
                await count_requests(connection, dialect, filter, by, found)
                if parts:
                    await request_percentiles(connection, dialect, filter, by, found)
                return found
            for span in spans(filter, largest=HOUR if step % DAY else DAY):
                if span.step is None:
                    await count_requests(connection, dialect, span.filter, by, found)
                else:
                    await tallied_requests(connection, span, span.step, by, found, parts or PARTS)
            if parts:
                await tallied_request_percentiles(connection, filter, by, found, parts)
        return found

    async def _decided(self, filter: EventFilter, names: Sequence[str]) -> list[Decided]:
        found: dict[tuple[object, ...], Decided] = {}
        async with self._database.read() as connection:
            if not has_decisions(filter) or await about(connection, filter) <= self._few:
                await count_decisions(connection, filter, names, found)
                await decision_percentiles(connection, filter, names, found)
            else:
                for span in spans(filter):
                    if span.step is None:
                        await count_decisions(connection, span.filter, names, found)
                    else:
                        await tallied_decisions(connection, span, span.step, names, found)
                await tallied_decision_percentiles(connection, filter, names, found)
        return sorted(found.values(), key=lambda each: (-each.decisions, *(str(value) for value in each.of.values())))
