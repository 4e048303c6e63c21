"""The live feed of decisions, on SQLite and PostgreSQL."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.dashboard.live_feed import DecisionFeed, event_id
from app.db.database import Database
from app.events.filters import EventFilter
from app.events.records import RequestEvent
from app.events.storage.writer import EventWriter
from app.settings import EventDurability

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]


async def test_live_feed_shows_each_decision_once_including_late_ones(
    open_database: Open, event: Callable[..., RequestEvent], tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    async with open_database() as database:
        writer = EventWriter(database, durability=EventDurability.SYNC, journal_path=tmp_path / "events")
        await writer.start()

        async def written(number: int, at: datetime, **changes: str) -> None:
            await writer.append(event(number, ts=at, **changes))

        await written(1, now - timedelta(minutes=2))
        await written(2, now - timedelta(minutes=1))
        an_hour_ago = event_id({"ts": now - timedelta(hours=1)})
        first, _ = await DecisionFeed(database, EventFilter(), after=an_hour_ago).look()
        feed = DecisionFeed(database, EventFilter(), after=event_id(first))
        assert [each["request_id"] for each in await feed.look()] == ["req_000002"]
        # This request began before the others and ended after them.
        await written(3, now - timedelta(minutes=3))
        await written(4, now, agent="other")
        assert [each["request_id"] for each in await feed.look()] == ["req_000003", "req_000004"]
        assert await feed.look() == []
        assert await DecisionFeed(database, EventFilter(agent="nobody"), after="nonsense").look() == []
        await writer.aclose()
