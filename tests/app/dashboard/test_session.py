"""Dashboard sessions, on SQLite and PostgreSQL."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from app.dashboard import session
from app.dashboard.session import Sessions
from app.db.database import Database
from app.db.tables import meta

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


async def test_the_stored_session_does_not_let_anyone_in(open_database: Open) -> None:
    async with open_database() as database:
        sessions = Sessions(database, b"key")
        cookie = await sessions.open()
        rows = await kept(database)
        assert len(rows) == 1
        assert not any(part in key + value for part in cookie.split(".")[::2] for key, value in rows.items())


async def test_expired_sessions_are_deleted(open_database: Open, monkeypatch: pytest.MonkeyPatch) -> None:
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
