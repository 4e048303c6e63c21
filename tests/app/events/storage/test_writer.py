"""No event is lost or stored twice, even if the database or the process fails."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, text

from app.db.database import Database
from app.db.schema import upgrade
from app.db.tables import claims, decisions, documents, requests
from app.events.records import RequestEvent
from app.events.storage.journal import Journal
from app.events.storage.writer import EventLostError, EventWriter, default_journal
from app.settings import EventDurability
from tests.support.storage.sqlite_lock import locked as sqlite_lock
from tests.support.storage.unmakeable_record import UnmakeableRecord

pytestmark = pytest.mark.anyio

Event = Callable[..., RequestEvent]
Open = Callable[[], AbstractAsyncContextManager[Database]]
Until = Callable[..., Any]

SYNC, BATCHED = EventDurability.SYNC, EventDurability.BATCHED


@asynccontextmanager
async def running(database: Database, path: Path, **options: Any) -> AsyncIterator[EventWriter]:
    writer = EventWriter(database, journal_path=path / "events", **{"retry_s": (0.02, 0.1), "linger_s": 0.01} | options)
    await writer.start()
    try:
        yield writer
    finally:
        await writer.aclose()


async def count(database: Database) -> tuple[int, ...]:
    """Rows of each table of the event log."""
    async with database.read() as connection:
        return tuple(
            [
                (await connection.execute(select(func.count()).select_from(table))).scalar_one()
                for table in (requests, decisions, claims, documents)
            ]
        )


@contextmanager
def locked(database: Database) -> Iterator[None]:
    assert database.path is not None
    with sqlite_lock(database.path):
        yield


@asynccontextmanager
async def away(database: Database) -> AsyncIterator[None]:
    """The database accepts no rows: its file is locked, or its table is renamed."""
    if database.dialect == "sqlite":
        with locked(database):
            yield
        return
    async with database.write() as connection:
        await connection.execute(text("ALTER TABLE requests RENAME TO elsewhere"))
    yield
    async with database.write() as connection:
        await connection.execute(text("ALTER TABLE elsewhere RENAME TO requests"))


@pytest.mark.parametrize("durability", [SYNC, BATCHED])
async def test_every_row_of_an_event_is_stored(
    open_database: Open, event: Event, tmp_path: Path, durability: EventDurability
) -> None:
    async with open_database() as database:
        async with running(database, tmp_path, durability=durability) as writer:
            await writer.append(event(7, prompt="p\0", reply="\ud800"))
        assert await count(database) == (1, 1, 3, 1)
        async with database.read() as connection:
            request = (await connection.execute(select(requests))).one()
            decision = (await connection.execute(select(decisions))).one()
    assert (request.request_id, request.ts, request.trust_score) == ("req_000007", event(7).request.ts, 0.5)
    assert (request.prompt, request.reply) == ("p\N{REPLACEMENT CHARACTER}", "?")
    assert decision.metadata == {"age_days": 400, "max_age": 90}
    assert (decision.action, decision.phase, decision.ts) == ("block", "before_workflow", request.ts)
    assert (writer.written, writer.journaled, writer.dropped, writer.failures) == (1, 0, 0, 0)


async def test_sync_returns_after_the_commit(open_database: Open, event: Event, tmp_path: Path) -> None:
    async with open_database() as database, running(database, tmp_path, durability=SYNC) as writer:
        for number in range(3):
            await writer.append(event(number))
            assert (await count(database))[0] == number + 1


async def test_concurrent_sync_appends_share_commits(
    open_database: Open, event: Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = 0
    transact = Database.transact

    def counted(self: Database, work: Any) -> Any:
        nonlocal commits
        commits += 1
        return transact(self, work)

    monkeypatch.setattr(Database, "transact", counted)
    async with open_database() as database, running(database, tmp_path, durability=SYNC) as writer:
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(writer.append(event(number)))
        assert (await count(database))[0] == 100
    assert commits <= 3


async def test_closing_drains_the_queue(open_database: Open, event: Event, tmp_path: Path) -> None:
    async with open_database() as database:
        async with running(database, tmp_path, batch_limit=7, linger_s=60) as writer:
            for number in range(20):
                await writer.append(event(number))
            assert writer.queue_depth == 20
        assert await count(database) == (20, 20, 60, 20)
        assert writer.queue_depth == 0


async def test_duplicate_event_is_stored_once(open_database: Open, event: Event, tmp_path: Path) -> None:
    async with open_database() as database:
        for _ in range(2):
            async with running(database, tmp_path) as writer:
                await writer.append(event(1))
                await writer.append(event(1))
        assert await count(database) == (1, 1, 3, 1)


@pytest.mark.parametrize("durability", [SYNC, BATCHED])
async def test_outage_loses_and_duplicates_nothing(
    open_database: Open, event: Event, tmp_path: Path, until: Until, durability: EventDurability
) -> None:
    async with open_database() as database, running(database, tmp_path, durability=durability) as writer:
        await writer.append(event(0))
        await until(lambda: writer.written == 1)
        async with away(database):
            for number in range(1, 11):
                await writer.append(event(number))
            await until(lambda: writer.journaled == 10)
            assert writer.journal_bytes > 0
            assert writer.failures >= 1
        await writer.append(event(11))
        await until(lambda: writer.journal_bytes == 0 and writer.queue_depth == 0)
        assert await count(database) == (12, 12, 36, 12)
        assert writer.dropped == 0
    assert not any(name.startswith("events") for name in os.listdir(tmp_path))


async def test_outage_at_the_end_is_recovered_at_the_next_start(
    open_database: Open, event: Event, tmp_path: Path, until: Until
) -> None:
    async with open_database() as database:
        async with away(database):
            async with running(database, tmp_path) as writer:
                await writer.append(event(1))
            assert (writer.written, writer.journaled) == (0, 1)
        async with running(database, tmp_path) as writer:
            await until(lambda: writer.journal_bytes == 0)
        assert await count(database) == (1, 1, 3, 1)


async def test_outage_at_startup_does_not_stop_the_writer(
    open_database: Open, event: Event, tmp_path: Path, until: Until
) -> None:
    async with open_database() as database:
        async with away(database), running(database, tmp_path) as writer:
            await writer.append(event(1))
        async with away(database):
            writer = EventWriter(database, journal_path=tmp_path / "events", retry_s=(0.02, 0.1), linger_s=0.01)
            await writer.start()
            await until(lambda: writer.failures > 0)
        await until(lambda: writer.journal_bytes == 0)
        await writer.aclose()
        assert (await count(database))[0] == 1


async def test_full_queue_spills_to_the_journal_without_waiting(
    sqlite_url: str, event: Event, tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.events.storage.writer._SPILL_WAIT_S", 10)  # another test covers slow disks
    await asyncio.to_thread(upgrade, sqlite_url)
    database = Database(sqlite_url, busy_timeout_s=30)
    async with running(database, tmp_path, queue_limit=5, batch_limit=5) as writer:
        with locked(database):
            async with asyncio.timeout(20):
                for number in range(40):
                    await writer.append(event(number))
            await until(lambda: writer.journaled > 0)
        await until(lambda: writer.journal_bytes == 0 and writer.queue_depth == 0)
        assert (await count(database))[0] == 40
        assert writer.dropped == 0
    await database.aclose()


async def test_event_loop_runs_while_the_database_is_locked(
    sqlite_url: str, event: Event, tmp_path: Path, until: Until
) -> None:
    await asyncio.to_thread(upgrade, sqlite_url)
    database = Database(sqlite_url, busy_timeout_s=0.5)
    loop = asyncio.get_running_loop()
    pauses = [loop.time()]
    async with running(database, tmp_path) as writer:
        with locked(database):
            await writer.append(event(1))

            def journaled() -> bool:
                pauses.append(loop.time())
                return writer.journaled == 1

            await until(journaled)
    assert max(after - before for before, after in pairwise(pauses)) < 0.4
    await database.aclose()


async def test_event_rejected_by_the_database_loses_only_itself(
    open_database: Open, event: Event, tmp_path: Path, until: Until
) -> None:
    async with open_database() as database:
        async with running(database, tmp_path, durability=SYNC) as writer, asyncio.TaskGroup() as group:
            for number in range(5):
                bad: dict[str, Any] = {"api": None} if number == 2 else {}
                group.create_task(writer.append(event(number, **bad)))
        assert (await count(database))[0] == 4
    assert (writer.written, writer.rejected, writer.dropped) == (4, 1, 0)
    assert b"req_000002" in (tmp_path / "events.rejected").read_bytes()


async def test_event_that_cannot_be_built_loses_only_itself(open_database: Open, event: Event, tmp_path: Path) -> None:
    async with open_database() as database:
        async with running(database, tmp_path) as writer, asyncio.TaskGroup() as group:
            for number in range(5):
                made = UnmakeableRecord() if number == 2 else event(number)
                group.create_task(writer.append(made))
        assert (await count(database))[0] == 4
    assert (writer.written, writer.rejected, writer.dropped, writer.failures) == (4, 1, 0, 0)


@pytest.mark.parametrize("outage", [False, True], ids=["database", "journal"])
async def test_sync_reports_the_loss_of_an_event_that_cannot_be_built(
    open_database: Open, event: Event, tmp_path: Path, outage: bool
) -> None:
    async with (
        open_database() as database,
        running(database, tmp_path, durability=SYNC, patience_s=60) as writer,
        away(database) if outage else nullcontext(),
    ):
        if outage:
            await writer.append(event(1))
        other = asyncio.ensure_future(writer.append(event(2)))
        with pytest.raises(EventLostError):
            await writer.append(UnmakeableRecord())
        await other
        assert (writer.journaled, writer.rejected) == (2 if outage else 0, 1)


async def test_with_the_journal_failing_too_sync_reports_it_and_batched_waits(
    sqlite_url: str, event: Event, tmp_path: Path, until: Until
) -> None:
    database = Database(sqlite_url, busy_timeout_s=0.05)  # without tables
    (tmp_path / "file").touch()
    async with running(database, tmp_path / "file", durability=SYNC) as writer:
        with pytest.raises(EventLostError):
            await writer.append(event(1))
        await asyncio.to_thread(upgrade, sqlite_url)
        await until(lambda: _stored(writer, event(2)))
        await until(lambda: writer.queue_depth == 0)
        assert writer.dropped == 0
    async with running(database, tmp_path / "file", queue_limit=1) as batched:
        with locked(database):
            for number in range(3, 6):
                await batched.append(event(number))
            await until(lambda: batched.dropped == 2)  # there was no room for them in memory
        await until(lambda: batched.written == 1)
    assert (await count(database))[0] == 3
    await database.aclose()


async def test_sync_does_not_wait_for_an_unresponsive_database(
    sqlite_url: str, event: Event, tmp_path: Path, until: Until
) -> None:
    await asyncio.to_thread(upgrade, sqlite_url)
    database = Database(sqlite_url, busy_timeout_s=300)
    writer = EventWriter(database, durability=SYNC, journal_path=tmp_path / "events", patience_s=0.05)
    await writer.start()
    with locked(database):
        await writer.append(event(1))
        assert (writer.journaled, writer.written) == (1, 0)
    await until(lambda: writer.queue_depth == 0 and writer.journal_bytes == 0)
    await writer.aclose()
    assert (await count(database))[0] == 1
    await database.aclose()


async def test_closing_does_not_wait_for_an_unresponsive_database(
    sqlite_url: str, event: Event, tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.events.storage.writer._CLOSE_S", 0.05)
    await asyncio.to_thread(upgrade, sqlite_url)
    database = Database(sqlite_url, busy_timeout_s=300)
    writer = EventWriter(database, journal_path=tmp_path / "events", linger_s=0.001)
    await writer.start()
    with locked(database):
        await writer.append(event(1))
        await writer.aclose()
        assert writer.journaled == 1
    async with running(database, tmp_path) as later:
        await until(lambda: later.written == 1)
    assert (await count(database))[0] == 1
    await database.aclose()


async def _stored(writer: EventWriter, event: RequestEvent) -> bool:
    try:
        await writer.append(event)
    except EventLostError:
        return False
    return True


async def test_events_after_closing_wait_in_the_journal(
    open_database: Open, event: Event, tmp_path: Path, until: Until
) -> None:
    async with open_database() as database:
        async with running(database, tmp_path) as writer:
            pass
        await writer.append(event(1))
        await writer.aclose()
        async with running(database, tmp_path) as later:
            await until(lambda: later.written == 1)
        assert (await count(database))[0] == 1


async def test_cancelled_close_still_keeps_the_events(
    sqlite_url: str, event: Event, tmp_path: Path, until: Until
) -> None:
    await asyncio.to_thread(upgrade, sqlite_url)
    database = Database(sqlite_url, busy_timeout_s=0.3)
    writer = EventWriter(database, journal_path=tmp_path / "events", linger_s=0.01)
    await writer.start()
    with locked(database):
        await writer.append(event(1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await writer.aclose()
    async with running(database, tmp_path) as later:
        await until(lambda: later.written == 1)
    assert (await count(database))[0] == 1
    await database.aclose()


async def test_events_before_a_failed_start_are_kept(
    open_database: Open, event: Event, tmp_path: Path, until: Until
) -> None:
    async with open_database() as database:
        writer = EventWriter(database, durability=SYNC, journal_path=tmp_path / "events")
        async with asyncio.TaskGroup() as group:
            group.create_task(writer.append(event(1)))
            await until(lambda: writer.queue_depth == 1)
            await writer.aclose()
        assert (writer.journaled, writer.queue_depth) == (1, 0)
        async with running(database, tmp_path) as later:
            await until(lambda: later.written == 1)


async def test_events_lost_at_the_end_are_counted(sqlite_url: str, event: Event, tmp_path: Path, until: Until) -> None:
    database = Database(sqlite_url)
    (tmp_path / "file").touch()
    writer = EventWriter(database, durability=SYNC, journal_path=tmp_path / "file" / "events")
    appended = asyncio.ensure_future(writer.append(event(1)))
    await until(lambda: writer.queue_depth == 1)
    await writer.aclose()
    with pytest.raises(EventLostError):
        await appended
    assert writer.dropped == 1
    await database.aclose()


@pytest.mark.parametrize("brief", [False, True])
async def test_stalled_journal_delays_an_event_only_briefly(
    sqlite_url: str, event: Event, tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch, brief: bool
) -> None:
    await asyncio.to_thread(upgrade, sqlite_url)
    database = Database(sqlite_url, busy_timeout_s=10)
    go_on = threading.Event()
    append = Journal.append

    def stalled(self: Journal, payloads: list[bytes]) -> None:
        go_on.wait()
        append(self, payloads)

    monkeypatch.setattr(Journal, "append", stalled)
    writer = EventWriter(database, queue_limit=1, journal_path=tmp_path / "events", linger_s=0.001)
    await writer.start()
    with locked(database):
        async with asyncio.timeout(2):
            for number in range(2):
                await writer.append(event(number))
            if brief:
                monkeypatch.setattr("app.events.storage.writer._SPILL_WAIT_S", 2)
                last = asyncio.ensure_future(writer.append(event(2)))
                await asyncio.sleep(0)
                go_on.set()
                await last
            else:
                await writer.append(event(2))
        assert writer.dropped == (0 if brief else 1)
        go_on.set()
    await until(lambda: writer.queue_depth == 0 and writer.journal_bytes == 0)
    await writer.aclose()
    assert (await count(database))[0] == (3 if brief else 2)
    await database.aclose()


def test_journal_is_next_to_the_database(tmp_path: Path) -> None:
    assert default_journal(Database(f"sqlite+aiosqlite:///{tmp_path}/a.db")) == tmp_path / "a.db.events"


@pytest.mark.slow
@pytest.mark.parametrize("outage", [False, True])
def test_acknowledged_events_survive_kill_9(sqlite_url: str, tmp_path: Path, until: Until, outage: bool) -> None:
    upgrade(sqlite_url)
    script = Path(__file__).parents[3] / "support" / "storage" / "event_appender.py"
    command = [sys.executable, str(script), sqlite_url, str(tmp_path / "events")]
    blocker = sqlite3.connect(tmp_path / "groundlane.db", isolation_level=None)
    if outage:
        blocker.execute("BEGIN EXCLUSIVE")
    acknowledged = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("req_"):  # and no line of the log
                acknowledged.append(line.strip())
            if len(acknowledged) == 200:
                process.send_signal(signal.SIGKILL)
        # Lines that were in the pipe are acknowledged too: the loop above reads them to the end.
    assert process.returncode == -signal.SIGKILL
    blocker.close()

    async def reopen() -> set[str]:
        database = Database(sqlite_url)
        async with running(database, tmp_path) as writer:
            await until(lambda: writer.journal_bytes == 0)
        async with database.read() as connection:
            found = (await connection.execute(select(requests.c.request_id))).scalars().all()
        assert await count(database) == (len(found), len(found), 3 * len(found), len(found))
        await database.aclose()
        return set(found)

    assert len(acknowledged) >= 200
    assert set(acknowledged) <= asyncio.run(reopen())
