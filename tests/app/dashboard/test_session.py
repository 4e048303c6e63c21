"""Sessions of the dashboard and its live tail, on both kinds of database."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from app.dashboard import session
from app.dashboard.live_feed import DecisionFeed, event_id
from app.dashboard.session import Sessions
from app.db.database import Database
from app.db.tables import meta
from app.events.queries import EventFilter
from app.events.records import RequestEvent
from app.events.storage.writer import EventWriter
from app.settings import EventDurability

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]


async def kept(database: Database) -> dict[str, str]:
    async with database.read() as connection:
        return {
            key: value
            for key, value in (await connection.execute(select(meta.c.key, meta.c.value))).all()
            if key.startswith("session/")
        }


async def test_a_session_is_found_on_every_worker_until_it_is_closed(open_database: Open) -> None:
    async with open_database() as database, open_database() as elsewhere:
        cookie = await Sessions(database, b"key").open()
        found = await Sessions(elsewhere, b"key").find(cookie)
        assert found is not None
        assert timedelta(hours=11) < found.expires_at - datetime.now(UTC) <= session.LIFETIME
        assert await Sessions(elsewhere, b"another key").find(cookie) is None
        await Sessions(elsewhere, b"key").close(found)
        assert await Sessions(database, b"key").find(cookie) is None


async def test_what_the_database_keeps_lets_nobody_in(open_database: Open) -> None:
    async with open_database() as database:
        sessions = Sessions(database, b"key")
        cookie = await sessions.open()
        rows = await kept(database)
        assert len(rows) == 1
        assert not any(part in key + value for part in cookie.split(".")[::2] for key, value in rows.items())


async def test_sessions_that_are_over_are_cleared_away(open_database: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_database() as database:
        sessions = Sessions(database, b"key")
        lasting = await sessions.open()
        monkeypatch.setattr(session, "LIFETIME", timedelta(seconds=-5))
        await sessions.open()
        await sessions.open()
        monkeypatch.undo()
        await sessions.open()
        assert len(await kept(database)) == 2
        assert await sessions.find(lasting) is not None


async def test_the_tail_shows_each_decision_once_and_late_ones_too(
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
        first = (await DecisionFeed(database, EventFilter(), after=event_id({"ts": now - timedelta(hours=1)})).look())[
            0
        ]
        tail = DecisionFeed(database, EventFilter(), after=event_id(first))
        assert [each["request_id"] for each in await tail.look()] == ["req_000002"]
        # Its request began before the others, and ended after them.
        await written(3, now - timedelta(minutes=3))
        await written(4, now, agent="other")
        assert [each["request_id"] for each in await tail.look()] == ["req_000003", "req_000004"]
        assert await tail.look() == []
        assert await DecisionFeed(database, EventFilter(agent="nobody"), after="nonsense").look() == []
        await writer.aclose()
