"""The register of workers: the running ones, the policies that each has loaded, and those that have ended."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, update

from app.db import tables
from app.db.database import Database, DatabaseUnavailableError
from app.db.tables import POLICY_REVISION
from app.policy_admin.policy_document import parse_document
from app.policy_admin.policy_store import PolicyStore
from app.worker_sync.change_notifications import ChangeWatcher
from app.worker_sync.worker_heartbeat import LiveWorker, WorkerHeartbeat, live_workers

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]
Until = Callable[..., Any]


@asynccontextmanager
async def worker(open_database: Open, renew_s: float = 60) -> AsyncIterator[tuple[PolicyStore, WorkerHeartbeat]]:
    async with open_database() as database:
        store = PolicyStore(database)
        watch = ChangeWatcher(database, {POLICY_REVISION: store.refresh}, poll_s=0.05)
        register = WorkerHeartbeat(database, store, renew_s=renew_s)
        register.start()
        await watch.start()
        try:
            yield store, register
        finally:
            await register.aclose()
            await watch.aclose()


async def test_each_worker_reports_what_it_has_loaded_and_when(open_database: Open, until: Until) -> None:
    async with open_database() as database, worker(open_database) as (one, first), worker(open_database) as (_, second):
        policy = await one.create(parse_document({"name": "gate", "category": "retrieval"}))
        await one.patch(policy.id, {"enabled": False})

        async def everywhere() -> bool:
            found = await live_workers(database)
            return [worker.versions for worker in found] == [{policy.id: 2}, {policy.id: 2}]

        await until(everywhere)
        found = await live_workers(database)
        assert {worker.id for worker in found} == {first.id, second.id}
        assert all(worker.started_at < worker.loaded_at <= worker.seen_at for worker in found)
        await one.delete(policy.id)

        async def nowhere() -> bool:
            return all(worker.versions == {} for worker in await live_workers(database))

        await until(nowhere)


async def test_ended_worker_disappears_and_a_killed_one_soon_after(open_database: Open, until: Until) -> None:
    async with open_database() as database:

        async def listed(count: int) -> bool:
            return len(await live_workers(database)) == count

        async with worker(open_database):
            await until(lambda: listed(1))
        assert await live_workers(database) == []
        async with worker(open_database):
            await until(lambda: listed(1))

            async def unseen() -> bool:
                """The row is also written when the policies have been loaded, which may come after this."""
                long_ago = datetime.now(UTC) - timedelta(seconds=30)
                async with database.write() as connection:
                    await connection.execute(update(tables.workers).values(seen_at=long_ago))
                return await live_workers(database) == []

            await until(unseen)


async def test_worker_renews_its_row_and_recreates_it(open_database: Open, until: Until) -> None:
    async with open_database() as database, worker(open_database, renew_s=0.02) as (_, register):
        seen: list[LiveWorker] = []

        async def renewed() -> bool:
            seen.extend(await live_workers(database))
            return len({worker.seen_at for worker in seen}) > 2

        await until(renewed)
        async with database.write() as connection:
            await connection.execute(delete(tables.workers))

        async def back() -> bool:
            return [worker.id for worker in await live_workers(database)] == [register.id]

        await until(back)


async def test_unavailable_database_stops_nothing(
    open_database: Open, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_database() as database, worker(open_database, renew_s=0.02):
        tried = asyncio.Event()
        write = Database.write

        @asynccontextmanager
        async def unavailable(self: Database) -> AsyncIterator[Any]:
            tried.set()
            if tried.is_set():
                raise DatabaseUnavailableError("away")
            yield

        monkeypatch.setattr(Database, "write", unavailable)
        await asyncio.wait_for(tried.wait(), 10)
        monkeypatch.setattr(Database, "write", write)
        before = datetime.now(UTC)

        async def back() -> bool:
            return any(worker.seen_at >= before for worker in await live_workers(database))

        await until(back)
