"""Counters: each reader is called when its own counter has changed, and continues when the database is available
again."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from app.db.database import Database, DatabaseUnavailableError
from app.worker_sync.change_notifications import ChangeWatcher, announce_change

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]
Until = Callable[..., Any]


class Readers:
    """Readers that count their calls; ``away``: each call fails."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.away = False

    def of(self, name: str) -> Callable[[], Awaitable[None]]:
        async def read() -> None:
            self.calls[name] += 1
            if self.away:
                raise DatabaseUnavailableError("away")

        return read


@asynccontextmanager
async def watching(database: Database, readers: Readers) -> AsyncIterator[None]:
    watch = ChangeWatcher(database, {name: readers.of(name) for name in ("a", "b")}, poll_s=0.005)
    await watch.start()
    try:
        yield
    finally:
        await watch.aclose()


async def changed(database: Database, name: str) -> None:
    async with database.write() as connection:
        await announce_change(database, connection, name)


async def test_only_changed_objects_are_reloaded(open_database: Open, until: Until) -> None:
    async with open_database() as database:
        readers = Readers()
        async with watching(database, readers):
            assert readers.calls == {"a": 1, "b": 1}
            await changed(database, "a")
            await until(lambda: readers.calls["a"] == 2)
            await changed(database, "a")
            await changed(database, "b")
            await until(lambda: readers.calls == {"a": 3, "b": 2})


async def test_failed_reload_is_repeated_when_the_database_returns(open_database: Open, until: Until) -> None:
    async with open_database() as database:
        readers = Readers()
        async with watching(database, readers):
            readers.away = True
            await changed(database, "a")
            await until(lambda: readers.calls["a"] >= 4)
            readers.away = False
            before = readers.calls["a"]
            await until(lambda: readers.calls["a"] > before)
            await changed(database, "b")
            await until(lambda: readers.calls["b"] == 2)


async def test_change_between_start_and_first_poll_is_seen(open_database: Open, until: Until) -> None:
    async with open_database() as database:
        readers = Readers()
        await changed(database, "a")
        async with watching(database, readers):
            await changed(database, "a")
            await until(lambda: readers.calls["a"] == 2)


async def test_watcher_does_not_start_without_a_database(open_database: Open) -> None:
    readers = Readers()
    readers.away = True
    async with open_database() as database:
        with pytest.raises(DatabaseUnavailableError):
            await ChangeWatcher(database, {"a": readers.of("a")}).start()
