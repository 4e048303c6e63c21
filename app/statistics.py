"""What the gateway did, in numbers: how many requests, what became of them, how long it took, what policies decided."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from app.db import Database
from app.events.counting import (
    Group,
    count_decisions,
    count_requests,
    decision_percentiles,
    names_of_policies,
    request_percentiles,
)
from app.events.numbers import Decided, Numbers, Times
from app.events.queries import EventFilter

__all__ = ["Decided", "Numbers", "Statistics", "Times"]

_MOST_GROUPS = 100


class Statistics:
    """Numbers of one database. All raise DatabaseUnavailableError.

    Filters by time, agent, model, action and policy are answered from what was counted ahead, by hour and by day, and
    cost the same however many requests there were. So does ``since`` or ``until`` within an hour but for the rows of
    that hour, which are looked at one by one; with any other filter all rows are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def totals(self, filter: EventFilter) -> Numbers:
        """All requests that match, as one, with percentiles."""
        found: dict[Group, Numbers] = {}
        async with self._database.read() as connection:
            await count_requests(connection, self._database.dialect, filter, None, found)
            await request_percentiles(connection, self._database.dialect, filter, None, found)
        return found.get(None, Numbers())

    async def groups(
        self, filter: EventFilter, by: Literal["agent", "model", "policy"]
    ) -> list[tuple[str | None, Numbers]]:
        """The requests by ``agent``, by ``model``, or by the id of each ``policy`` that decided on them (a request
        counts for all of them), with percentiles; those with the most first, at most a hundred."""
        found: dict[Group, Numbers] = {}
        async with self._database.read() as connection:
            await count_requests(connection, self._database.dialect, filter, by, found)
            await request_percentiles(connection, self._database.dialect, filter, by, found)
        largest = sorted(found.items(), key=lambda item: (-item[1].requests, item[0] or ""))[:_MOST_GROUPS]
        return [(None if key is None else str(key), numbers) for key, numbers in largest]

    async def buckets(
        self, filter: EventFilter, seconds: int, start: datetime, end: datetime
    ) -> list[tuple[datetime, Numbers]]:
        """The requests by time, from ``start`` to ``end`` in steps of ``seconds``, empty steps among them, without
        percentiles. Steps are a minute, or whole hours that a day can be divided by, or a day; they begin in UTC."""
        found: dict[Group, Numbers] = {}
        async with self._database.read() as connection:
            await count_requests(connection, self._database.dialect, filter, seconds, found)
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
            called = await names_of_policies(connection, filter)
        for decided in found:
            decided.of = {**decided.of, "policy_name": called.get(decided.of["policy_id"])}
        return found

    async def _decided(self, filter: EventFilter, names: Sequence[str]) -> list[Decided]:
        found: dict[tuple[object, ...], Decided] = {}
        async with self._database.read() as connection:
            await count_decisions(connection, filter, names, found)
            await decision_percentiles(connection, filter, names, found)
        return sorted(found.values(), key=lambda each: (-each.decisions, *(str(value) for value in each.of.values())))
