"""The journal is replayed twice, in pieces, or after a crash: each event is stored once and counted once."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from app.db.database import Database, DatabaseUnavailableError
from app.db.rollup_tables import HOUR, NONE, request_statistics
from app.db.tables import claims, decisions, documents, requests
from app.events.records import RequestEvent
from app.events.serialization import dump, event_rows
from app.events.storage import writer as writing
from app.events.storage.journal import Journal
from app.events.storage.writer import EventWriter

pytestmark = pytest.mark.anyio

Event = Callable[..., RequestEvent]
Open = Callable[[], AbstractAsyncContextManager[Database]]
Until = Callable[..., Any]
EVENTS = 10


@asynccontextmanager
async def replaying(database: Database, path: Path) -> AsyncIterator[EventWriter]:
    writer = EventWriter(database, journal_path=path, batch_limit=3, linger_s=0.001, retry_s=(0.01, 0.05))
    await writer.start()
    try:
        yield writer
    finally:
        await writer.aclose()


def journaled(path: Path, event: Event) -> Path:
    """The journal of an exited gateway, with events in it; returns its file."""
    journal = Journal(path)
    journal.append([dump(event_rows(event(number))) for number in range(EVENTS)])
    journal.close()
    (file,) = path.parent.glob(f"{path.name}.*.jsonl")
    return file


async def counted(database: Database) -> tuple[int, ...]:
    """Rows of each table of the event log, and the requests that the statistics count."""
    async with database.read() as connection:
        rows = [
            (await connection.execute(select(func.count()).select_from(table))).scalar_one()
            for table in (requests, decisions, claims, documents)
        ]
        ahead = select(func.sum(request_statistics.c.requests)).where(
            request_statistics.c.policy_id == NONE, request_statistics.c.step == HOUR
        )
        return (*rows, int((await connection.execute(ahead)).scalar_one() or 0))


ONCE = (EVENTS, EVENTS, 3 * EVENTS, EVENTS, EVENTS)


async def test_restored_journal_adds_nothing(open_database: Open, event: Event, tmp_path: Path, until: Until) -> None:
    """A copy of the file, restored after its replay as from a backup, is replayed again."""
    path = tmp_path / "events"
    file = journaled(path, event)
    shutil.copy(file, tmp_path / "copy")
    async with open_database() as database:
        for _ in range(2):
            async with replaying(database, path) as writer:
                await until(lambda writer=writer: writer.written == EVENTS)
            assert not file.exists()
            assert await counted(database) == ONCE
            shutil.copy(tmp_path / "copy", file)


@pytest.mark.parametrize("stored", [False, True], ids=["before-the-commit", "after-the-commit"])
@pytest.mark.parametrize("pieces", [1, 2, 3])
async def test_interrupted_replay_is_completed(
    open_database: Open,
    event: Event,
    tmp_path: Path,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    pieces: int,
    stored: bool,
) -> None:
    """The database fails during a piece, stored already or not; the process exits, and another one starts."""
    path, store, asked = tmp_path / "events", writing.store, 0
    file = journaled(path, event)

    async def cut(database: Database, batch: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked < pieces or (asked == pieces and stored):
            await store(database, batch)
        if asked >= pieces:
            raise DatabaseUnavailableError("gone")
        return []

    async with open_database() as database:
        with monkeypatch.context() as patched:
            patched.setattr(writing, "store", cut)
            async with replaying(database, path):
                await until(lambda: asked >= pieces + 1)
        assert (await counted(database))[0] == 3 * (pieces if stored else pieces - 1)
        async with replaying(database, path) as writer:
            await until(lambda: writer.journal_bytes == 0)
        assert await counted(database) == ONCE
        assert not file.exists()


async def test_two_gateways_store_shared_events_once(
    open_database: Open, event: Event, tmp_path: Path, until: Until
) -> None:
    """Both replay at once, from copies of one journal."""
    paths = [tmp_path / name / "events" for name in ("one", "two")]
    for path in paths:
        path.parent.mkdir()
        journaled(path, event)
    async with open_database() as first, open_database() as second:
        async with replaying(first, paths[0]) as one, replaying(second, paths[1]) as two:
            await until(lambda: one.written == two.written == EVENTS, 30)
        await asyncio.sleep(0)
        assert await counted(first) == ONCE
