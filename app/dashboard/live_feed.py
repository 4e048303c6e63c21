"""The live feed of decisions. It reads from the event log, so it includes decisions from every worker."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

from sse_starlette.event import ServerSentEvent

from app.api.admin.common import utc
from app.dashboard.templating import render
from app.db.database import Database, DatabaseUnavailableError
from app.events.filters import EventFilter
from app.events.queries import EventQueries

LOOK_S = 1.0
_LATE = timedelta(minutes=10)
"""The maximum delay before a decision is logged. Its timestamp is that of the request, but it is written after the
reply ends."""
_AT_ONCE = 200
_LOOKS_PER_SESSION_CHECK = 15


class DecisionFeed:
    """Polls the event log once a second for new decisions. ``after`` is the ``event_id`` of the last decision shown.
    Without ``after``, the feed starts now."""

    def __init__(self, database: Database, filter: EventFilter, *, after: str | None = None) -> None:
        self._queries = EventQueries(database)
        self._filter = filter
        self._after = _time_of(after) or datetime.now(UTC)
        self._shown: dict[str, datetime] = {}
        self._begun = False

    async def run(self, signed_in: Callable[[], Awaitable[object | None]]) -> AsyncIterator[ServerSentEvent]:
        """Yield one event per decision until the session ends. ``signed_in`` returns None once the session has
        ended."""
        looks = 0
        while True:
            try:
                if looks % _LOOKS_PER_SESSION_CHECK == 0 and await signed_in() is None:
                    yield ServerSentEvent(event="end", data="signed out")
                    return
                for decision in await self.look():
                    line = render("overview/decision.html", decision=decision)
                    yield ServerSentEvent(event="decision", id=event_id(decision), data=line)
            except DatabaseUnavailableError:
                yield ServerSentEvent(event="away", data="database unavailable")
            looks += 1
            await asyncio.sleep(LOOK_S)

    async def look(self) -> list[dict[str, object]]:
        """Return the decisions since the last call, oldest first. Raises DatabaseUnavailableError."""
        since = datetime.now(UTC) - _LATE
        wanted = EventFilter(
            since=since, agent=self._filter.agent, model=self._filter.model, policy=self._filter.policy
        )
        found = (await self._queries.events(wanted, limit=_AT_ONCE)).items
        self._shown = {id: ts for id, ts in self._shown.items() if ts >= since}
        fresh = [decision for decision in reversed(found) if decision["id"] not in self._shown]
        self._shown |= {decision["id"]: decision["ts"] for decision in fresh}
        if not self._begun:
            self._begun = True
            fresh = [decision for decision in fresh if decision["ts"] > self._after]
        return fresh


def event_id(decision: dict[str, object]) -> str:
    """Return the SSE event id that a browser sends back when it reconnects."""
    ts = decision["ts"]
    return ts.isoformat() if isinstance(ts, datetime) else ""


def _time_of(event_id: str | None) -> datetime | None:
    try:
        return None if not event_id else utc(datetime.fromisoformat(event_id.replace(" ", "+")))
    except ValueError:
        return None
