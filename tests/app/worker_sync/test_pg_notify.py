"""Notifications between processes on PostgreSQL: received at once, and again after a lost connection."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from sqlalchemy import select, text, update

from app.auth import KeyDraft, KeyStore
from app.db.database import Database
from app.db.tables import KEY_REVISION, POLICY_REVISION, meta
from app.policy_admin.policy_document import parse_document
from app.policy_admin.policy_store import PolicyStore
from app.worker_sync.change_notifications import ChangeWatcher
from app.worker_sync.pg_notify import NotifyListener, notify

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("database_url", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True),
]

Open = Callable[[], AbstractAsyncContextManager[Database]]
Until = Callable[..., Any]
NEVER_S = 3_600.0


async def cut(database: Database) -> int:
    """End every database connection that waits for notifications, as a restart would; return their number."""
    ended = text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND query LIKE 'LISTEN %'"
    )
    async with database.read() as connection:
        return len((await connection.execute(ended)).all())


async def test_changes_are_notified_without_polling(open_database: Open, until: Until) -> None:
    async with open_database() as one, open_database() as other:
        policies, keys = PolicyStore(other), KeyStore(other)
        readers = {POLICY_REVISION: policies.refresh, KEY_REVISION: keys.refresh}
        watch = ChangeWatcher(other, readers, poll_s=NEVER_S)
        await watch.start()
        made = await PolicyStore(one).create(parse_document({"name": "gate", "category": "retrieval"}))
        await until(lambda: policies.loaded_versions == {made.id: 1})
        _, key = await KeyStore(one).create(KeyDraft(name="bot"))
        await until(lambda: keys.find(key) is not None)
        await watch.aclose()


async def test_changes_during_a_lost_connection_are_found_by_polling(open_database: Open, until: Until) -> None:
    async with open_database() as one, open_database() as other:
        policies, store = PolicyStore(other), PolicyStore(one)
        watch = ChangeWatcher(other, {POLICY_REVISION: policies.refresh}, poll_s=NEVER_S)
        await watch.start()
        made = await store.create(parse_document({"name": "gate", "category": "retrieval"}))
        await until(lambda: policies.loaded_versions == {made.id: 1})
        assert await cut(one) == 1
        await store.patch(made.id, {"priority": 1})
        await until(lambda: policies.loaded_versions == {made.id: 2})
        await store.patch(made.id, {"priority": 2})
        await until(lambda: policies.loaded_versions == {made.id: 3})
        await watch.aclose()


async def test_change_without_a_notification_is_found(open_database: Open, until: Until) -> None:
    """As behind a proxy that pools by transaction, or beside a worker of an older version."""
    async with open_database() as database:
        read = 0

        async def reader() -> None:
            nonlocal read
            read += 1

        watch = ChangeWatcher(database, {POLICY_REVISION: reader}, poll_s=0.01)
        await watch.start()
        async with database.write() as connection:
            before = (await connection.execute(select(meta.c.value).where(meta.c.key == POLICY_REVISION))).scalar_one()
            changed = update(meta).where(meta.c.key == POLICY_REVISION).values(value=f"{int(before) + 1}")
            await connection.execute(changed)
        await until(lambda: read == 2)
        await watch.aclose()


class Notes:
    """Counts its calls."""

    def __init__(self) -> None:
        self.told = 0

    def __call__(self) -> None:
        self.told += 1


async def fail_after_notifying(database: Database) -> None:
    async with database.write() as connection:
        await notify(database, connection, "a")
        raise ZeroDivisionError


async def test_only_committed_changes_are_notified(open_database: Open, until: Until) -> None:
    async with open_database() as database:
        notes = Notes()
        listener = NotifyListener(database, notes)
        listener.start()
        await until(lambda: notes.told == 1)
        with pytest.raises(ZeroDivisionError):
            await fail_after_notifying(database)
        async with database.write() as connection:
            await notify(database, connection, "b")
            assert notes.told == 1
        await until(lambda: notes.told == 2)
        await listener.aclose()


async def test_lost_connection_is_replaced_and_none_remains_at_the_end(open_database: Open, until: Until) -> None:
    async with open_database() as database:
        notes = Notes()
        listener = NotifyListener(database, notes, retry_s=(0.01, 0.02))
        listener.start()
        await until(lambda: notes.told == 1)
        for number in (2, 3):
            assert await cut(database) == 1
            await until(lambda number=number: notes.told == number)
        await listener.aclose()

        async def all_gone() -> bool:
            return await cut(database) == 0

        await until(all_gone)
