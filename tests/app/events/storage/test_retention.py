"""Requests older than the limit are deleted with their dependent rows, and nothing else."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, insert, select, update

from app.auth.audit_log import AuditFilter, entries
from app.db.database import Database, DatabaseUnavailableError
from app.db.tables import claims, decisions, documents, feedback, requests, runs
from app.events.records import RequestEvent
from app.events.serialization import event_rows
from app.events.storage.insert import store
from app.events.storage.retention import Pruned, Retention, prune

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]
Event = Callable[..., RequestEvent]
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


async def filled(database: Database, event: Event, start: datetime = EPOCH) -> None:
    """Ten requests, one per second, of which 1 and 2 have feedback, and two runs."""
    events = [event(number, ts=start + timedelta(seconds=number)) for number in range(10)]
    assert await store(database, [event_rows(each) for each in events]) == []
    async with database.write() as connection:
        for number in (1, 2):
            row = {"id": f"f{number}", "request_id": f"req_{number:06d}", "correct": False, "created_at": EPOCH}
            await connection.execute(insert(feedback), row)
        for name, touched in (("old", start), ("touched", start + timedelta(seconds=9))):
            row = {"run_id": name, "status": "open", "version": 1, "state": {}}
            await connection.execute(insert(runs), {**row, "created_at": start, "updated_at": touched})


async def counted(database: Database) -> dict[str, int]:
    found = {}
    async with database.read() as connection:
        for table in (requests, decisions, claims, documents, feedback, runs):
            found[table.name] = (await connection.execute(select(func.count()).select_from(table))).scalar_one()
    return found


@pytest.mark.parametrize("batch", [1, 4, 500])
async def test_old_requests_are_deleted_with_their_rows(open_database: Open, event: Event, batch: int) -> None:
    async with open_database() as database:
        await filled(database, event)
        gone = await prune(database, EPOCH + timedelta(seconds=4), batch=batch)
        assert gone == Pruned(requests=4, runs=1)
        assert await counted(database) == {
            "requests": 6, "decisions": 6, "claims": 18, "documents": 6, "feedback": 0, "runs": 1,
        }  # fmt: skip
        async with database.read() as connection:
            oldest = (await connection.execute(select(func.min(requests.c.request_id)))).scalar_one()
        assert oldest == "req_000004"
        assert await prune(database, EPOCH + timedelta(seconds=4), batch=batch) == Pruned(requests=0, runs=0)
        (line,) = await entries(database, AuditFilter(action="events.prune"), limit=5)
        assert line["after"] == {"before": "2026-01-01T00:00:04+00:00", "requests": 4, "runs": 1}


async def test_requests_with_feedback_can_be_kept(open_database: Open, event: Event) -> None:
    async with open_database() as database:
        await filled(database, event)
        gone = await prune(database, EPOCH + timedelta(days=1), keep_marked=True, batch=3)
        assert gone == Pruned(requests=8, runs=2)
        assert (await counted(database))["feedback"] == 2


async def test_dry_run_counts_and_deletes_nothing(open_database: Open, event: Event) -> None:
    async with open_database() as database:
        await filled(database, event)
        before = await counted(database)
        assert await prune(database, EPOCH + timedelta(seconds=4), dry_run=True) == Pruned(requests=4, runs=1)
        marked = await prune(database, EPOCH + timedelta(seconds=4), dry_run=True, keep_marked=True)
        assert marked == Pruned(requests=2, runs=1)
        assert await counted(database) == before
        assert await entries(database, AuditFilter(), limit=5) == []


async def test_only_one_process_prunes(open_database: Open, event: Event, until: Callable[..., Any]) -> None:
    async with open_database() as database:
        await filled(database, event, datetime.now(UTC) - timedelta(days=10))
        async with database.write() as connection:
            fresh = update(requests).where(requests.c.request_id == "req_000009").values(ts=datetime.now(UTC))
            await connection.execute(fresh)
        keepers = [Retention(database, days=1) for _ in range(3)]
        for keeper in keepers:
            keeper.start()

        async def pruned() -> bool:
            return bool(await entries(database, AuditFilter(action="events.prune"), limit=5))

        await until(pruned)
        for keeper in keepers:
            await keeper.aclose()
        assert (await counted(database))["requests"] == 1
        (line,) = await entries(database, AuditFilter(), limit=5)
        assert line["actor"] == "retention"
        assert await keepers[0]._turn() is False


async def test_unavailable_database_is_retried(
    open_database: Open, event: Event, until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0

    async def away(_self: Retention) -> bool:
        nonlocal turns
        turns += 1
        raise DatabaseUnavailableError("away")

    async with open_database() as database:
        await filled(database, event, datetime.now(UTC) - timedelta(days=10))
        keeper = Retention(database, days=1, every_s=0.001)
        with monkeypatch.context() as patched:
            patched.setattr(Retention, "_turn", away)
            keeper.start()
            await until(lambda: turns > 2)
            assert (await counted(database))["requests"] == 10

        async def pruned() -> bool:
            return (await counted(database))["requests"] == 0

        await until(pruned)
        await keeper.aclose()
