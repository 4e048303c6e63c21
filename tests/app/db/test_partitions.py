"""Monthly partitions on PostgreSQL: every row is in its month, whole months are dropped, and nothing is lost or stored
twice.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, insert, select, text
from sqlalchemy.dialects import postgresql

from app.auth.audit_log import AuditFilter, entries
from app.db import partitions
from app.db.database import Database, DatabaseUnavailableError
from app.db.partitions import MonthInUseError, PartitionKeeper, create_months, drop_months, month_of, next_month
from app.db.tables import EVENT_TABLES, MARKS, feedback, requests
from app.events.filters import EventFilter
from app.events.queries import EventQueries
from app.events.records import RequestEvent
from app.events.serialization import dump, event_rows, load
from app.events.sql_conditions import requests_matching
from app.events.storage.insert import store
from app.events.storage.retention import Pruned, prune

Open = Callable[[], AbstractAsyncContextManager[Database]]
Event = Callable[..., RequestEvent]

DECEMBER, JANUARY, FEBRUARY, MARCH = (
    datetime(2025, 12, 1, tzinfo=UTC), *(datetime(2026, month, 1, tzinfo=UTC) for month in (1, 2, 3)),
)  # fmt: skip
MIDNIGHT = timedelta(microseconds=1)


def on_postgres(test: Any) -> Any:
    for mark in (pytest.mark.anyio, pytest.mark.postgres):
        test = mark(test)
    return pytest.mark.parametrize("database_url", ["postgres"], indirect=True)(test)


async def places(database: Database) -> dict[str, set[str]]:
    """By request: the name suffixes of the partitions that contain its rows."""
    found: dict[str, set[str]] = {}
    async with database.read() as connection:
        for table in EVENT_TABLES:
            lies = await connection.execute(text(f"SELECT request_id, tableoid::regclass::text FROM {table.name}"))
            for request_id, partition in lies:
                found.setdefault(request_id, set()).add(partition.removeprefix(f"{table.name}_"))
    return found


async def counted(database: Database) -> list[int]:
    async with database.read() as connection:
        return [
            (await connection.execute(select(func.count()).select_from(table))).scalar_one()
            for table in (*EVENT_TABLES, feedback)
        ]


async def names(database: Database) -> list[str]:
    """The name suffixes of the partitions, which must be the same for all tables."""
    found = []
    async with database.read() as connection:
        for table in EVENT_TABLES:
            query = f"SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '{table.name}'::regclass"
            there = (await connection.execute(text(query))).scalars()
            found.append(sorted(name.removeprefix(f"{table.name}_") for name in there))
    assert all(each == found[0] for each in found)
    return found[0]


async def put(database: Database, *events: RequestEvent) -> None:
    assert await store(database, [event_rows(event) for event in events]) == []


async def mark(database: Database, request_id: str) -> None:
    row = {"id": request_id, "request_id": request_id, "correct": True, "created_at": MARCH}
    async with database.write() as connection:
        await connection.execute(insert(feedback), row)


@pytest.mark.parametrize(
    ("time", "month", "after"),
    [
        (datetime(2026, 1, 31, 23, 59, 59, 999999, tzinfo=UTC), JANUARY, FEBRUARY),
        (datetime.fromisoformat("2026-02-01T00:30:00+01:00"), JANUARY, FEBRUARY),
        (datetime.fromisoformat("2025-12-31T20:00:00-05:00"), JANUARY, FEBRUARY),
        (DECEMBER, DECEMBER, JANUARY),
        (datetime(2028, 2, 29, tzinfo=UTC), datetime(2028, 2, 1, tzinfo=UTC), datetime(2028, 3, 1, tzinfo=UTC)),
    ],
)
def test_months_begin_in_utc(time: datetime, month: datetime, after: datetime) -> None:
    assert month_of(time) == month
    assert next_month(month) == after


@on_postgres
async def test_current_and_next_two_months_are_created_once(open_database: Open) -> None:
    async with open_database() as database, open_database() as another:
        made = await asyncio.gather(create_months(database, JANUARY), create_months(another, JANUARY))
        assert sorted([*made[0], *made[1]]) == [JANUARY, FEBRUARY, MARCH]
        assert await create_months(database, JANUARY + timedelta(days=30)) == []
        assert await create_months(database, FEBRUARY) == [next_month(MARCH)]


@on_postgres
async def test_every_row_is_in_the_month_of_its_request(open_database: Open, empty_url: str, event: Event) -> None:
    async with open_database() as database, database.write() as connection:
        name = (await connection.execute(text("SELECT current_database()"))).scalar_one()
        await connection.execute(text(f"ALTER DATABASE \"{name}\" SET timezone = 'America/New_York'"))
    async with open_database() as database:
        await create_months(database, JANUARY)
        times = (JANUARY, FEBRUARY - MIDNIGHT, FEBRUARY, MARCH - MIDNIGHT, MARCH)
        await put(database, *(event(number, ts=time) for number, time in enumerate(times)))
        found = await places(database)
    assert [found[f"req_{number:06d}"] for number in range(5)] == [
        {"2026_01"}, {"2026_01"}, {"2026_02"}, {"2026_02"}, {"2026_03"},
    ]  # fmt: skip


@on_postgres
async def test_event_without_a_partition_is_kept_and_moved_later(open_database: Open, event: Event) -> None:
    async with open_database() as database:
        await create_months(database, FEBRUARY)
        await put(database, event(1, ts=JANUARY - MIDNIGHT), event(2, ts=JANUARY), event(3, ts=FEBRUARY))
        found = await places(database)
        assert found["req_000001"] == found["req_000002"] == {"default"}
        trace = await EventQueries(database).trace("req_000001")
        assert await create_months(database, FEBRUARY) == [DECEMBER, JANUARY]
        assert list((await places(database)).values()) == [{"2025_12"}, {"2026_01"}, {"2026_02"}]
        assert await EventQueries(database).trace("req_000001") == trace


@on_postgres
async def test_writes_during_partition_creation_succeed(open_database: Open, event: Event) -> None:
    async with open_database() as database, open_database() as another:
        async with asyncio.TaskGroup() as group:
            for number in range(30):
                group.create_task(put(another, event(number, ts=MARCH + timedelta(seconds=number))))
            group.create_task(create_months(database, MARCH))
        assert await counted(database) == [30, 30, 90, 30, 0]
        assert set.union(*(await places(database)).values()) == {"2026_03"}


@on_postgres
async def test_replay_adds_no_duplicates(open_database: Open, event: Event) -> None:
    lines = [dump(event_rows(event(number, ts=JANUARY + timedelta(days=20 * number)))) for number in range(3)]
    async with open_database() as database:
        for ahead in (None, FEBRUARY, JANUARY):
            if ahead is not None:
                await create_months(database, ahead)
            assert await store(database, [load(line) for line in lines]) == []
            assert await counted(database) == [3, 3, 9, 3, 0]


@on_postgres
async def test_past_months_are_dropped_and_other_rows_deleted(open_database: Open, event: Event) -> None:
    async with open_database() as database:
        await create_months(database, DECEMBER)
        times = (DECEMBER, JANUARY - MIDNIGHT, JANUARY, JANUARY + timedelta(days=14), FEBRUARY, MARCH)
        await put(database, *(event(number, ts=time) for number, time in enumerate(times)))
        await mark(database, "req_000001")
        await mark(database, "req_000004")
        before = JANUARY + timedelta(days=10)
        assert await prune(database, before, dry_run=True) == Pruned(requests=3, runs=0)
        assert await prune(database, before) == Pruned(requests=3, runs=0)
        assert await counted(database) == [3, 3, 9, 3, 1]
        assert await names(database) == ["2026_01", "2026_02", "default"]
        assert (await places(database))["req_000005"] == {"default"}
        (line,) = await entries(database, AuditFilter(action="events.prune"), limit=5)
        assert line["after"] == {"before": before.isoformat(), "requests": 3, "runs": 0}
        # The month is dropped exactly at its end, and nothing of the next one.
        assert await drop_months(database, FEBRUARY - MIDNIGHT, keep_marked=False) == 0
        assert await drop_months(database, FEBRUARY, keep_marked=False) == 1
        assert await names(database) == ["2026_02", "default"]
        assert await prune(database, FEBRUARY) == Pruned(requests=0, runs=0)


@on_postgres
async def test_no_mark_outlives_a_month_that_is_dropped(open_database: Open, event: Event) -> None:
    async with open_database() as database:
        await create_months(database, DECEMBER)
        await put(database, event(0, ts=DECEMBER), event(1, ts=JANUARY))
        async with database.write() as connection:
            for table in MARKS:
                values = {"correct": True} if table is feedback else {"verdict": "supported", "author": "ann", "seq": 0}
                keys = {"id": "fb_{}"} if table is feedback else {}
                await connection.execute(
                    insert(table),
                    [
                        {**{name: key.format(number) for name, key in keys.items()}, **values}
                        | {"request_id": f"req_{number:06d}", "created_at": MARCH}
                        for number in range(2)
                    ],
                )
        assert await drop_months(database, JANUARY, keep_marked=False) == 1
        async with database.read() as connection:
            for table in MARKS:
                assert (await connection.execute(select(table.c.request_id))).scalars().all() == ["req_000001"]


@on_postgres
async def test_month_with_kept_feedback_is_deleted_row_by_row(open_database: Open, event: Event) -> None:
    async with open_database() as database:
        await create_months(database, DECEMBER)
        times = (DECEMBER, DECEMBER + timedelta(days=3), JANUARY, FEBRUARY)
        await put(database, *(event(number, ts=time) for number, time in enumerate(times)))
        await mark(database, "req_000001")
        assert await prune(database, FEBRUARY, keep_marked=True) == Pruned(requests=2, runs=0)
        assert await names(database) == ["2025_12", "2026_02", "default"]
        assert await counted(database) == [2, 2, 6, 2, 1]
        assert await prune(database, FEBRUARY) == Pruned(requests=1, runs=0)
        assert await counted(database) == [1, 1, 3, 1, 0]


@on_postgres
async def test_late_events_of_a_dropped_month_are_kept_until_the_next_run(open_database: Open, event: Event) -> None:
    async with open_database() as database:
        await create_months(database, DECEMBER)
        await put(database, event(1, ts=DECEMBER))
        assert (await prune(database, JANUARY)).requests == 1
        # The connection still has its prepared statements.
        await put(database, event(1, ts=DECEMBER), event(2, ts=DECEMBER), event(3, ts=JANUARY))
        assert await places(database) == {
            "req_000001": {"default"}, "req_000002": {"default"}, "req_000003": {"2026_01"},
        }  # fmt: skip
        assert (await prune(database, JANUARY)).requests == 2
        assert await counted(database) == [1, 1, 3, 1, 0]


@on_postgres
async def test_month_in_use_is_deleted_row_by_row_after_waiting(
    open_database: Open, event: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_ATTEMPTS", 2)
    monkeypatch.setattr(partitions, "_LOCK_TIMEOUT_MS", 20)
    async with open_database() as database, open_database() as another:
        await create_months(database, DECEMBER)
        await put(database, event(1, ts=DECEMBER), event(2, ts=MARCH))
        async with another.read() as reading:
            await reading.execute(select(requests.c.request_id))
            assert await prune(database, JANUARY) == Pruned(requests=1, runs=0)
            await put(database, event(3, ts=JANUARY))
            with pytest.raises(MonthInUseError):
                await create_months(database, DECEMBER)
        assert "2025_12" in await names(database)
        assert await prune(database, JANUARY) == Pruned(requests=0, runs=0)
        assert "2025_12" not in await names(database)
        assert await create_months(database, DECEMBER) == [DECEMBER, MARCH]


@on_postgres
async def test_queries_read_only_the_months_in_their_range(open_database: Open, event: Event) -> None:
    async with open_database() as database:
        await create_months(database, JANUARY)
        await put(database, event(1, ts=JANUARY), event(2, ts=FEBRUARY), event(3, ts=MARCH))
        filter = EventFilter(since=FEBRUARY, until=MARCH, phase="before_workflow")
        query = requests_matching(filter, requests.c.request_id).compile(
            dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True}
        )
        async with database.read() as connection:
            plan = str((await connection.execute(text(f"EXPLAIN {query}"))).all())
        page = await EventQueries(database).requests(EventFilter(phase="before_workflow"), limit=2)
        rest = await EventQueries(database).requests(EventFilter(phase="before_workflow"), limit=2, after=page.next)
        claims = [each async for each in EventQueries(database).all_claims(EventFilter())]
    assert "requests_2026_02" in plan
    assert "decisions_2026_02" in plan
    assert not any(name in plan for name in ("2026_01", "2026_03", "default"))
    assert [item["request_id"] for item in (*page.items, *rest.items)] == ["req_000003", "req_000002", "req_000001"]
    assert [claim["ts"] for claim in claims] == [MARCH] * 3 + [FEBRUARY] * 3 + [JANUARY] * 3


@on_postgres
async def test_keeper_creates_missing_months_repeatedly(
    open_database: Open, event: Event, until: Callable[..., Any]
) -> None:
    month = month_of(datetime.now(UTC))
    ahead = [month, next_month(month), next_month(next_month(month))]
    async with open_database() as database:
        keeper = PartitionKeeper(database, every_s=0.01, retry_s=0.01)
        await keeper.start()
        assert await names(database) == [*(f"{each:%Y_%m}" for each in ahead), "default"]
        await put(database, event(1, ts=DECEMBER))

        async def made() -> bool:
            # Read only the catalogue, because the keeper would wait for a lock on the table.
            async with database.read() as connection:
                return (await connection.execute(text("SELECT to_regclass('documents_2025_12')"))).scalar() is not None

        await until(made, deadline_s=60)
        assert (await places(database))["req_000001"] == {"2025_12"}
        await keeper.aclose()


@on_postgres
async def test_keeper_survives_an_unavailable_database(
    open_database: Open, until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0

    async def away(_database: Database, _now: datetime) -> list[datetime]:
        nonlocal turns
        turns += 1
        raise DatabaseUnavailableError("away")

    async with open_database() as database:
        monkeypatch.setattr(partitions, "create_months", away)
        keeper = PartitionKeeper(database, retry_s=0.001)
        await keeper.start()
        await until(lambda: turns > 2)
        await keeper.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_sqlite_has_no_partitions(open_database: Open, event: Event) -> None:
    async with open_database() as database:
        keeper = PartitionKeeper(database)
        await keeper.start()
        await put(database, event(1))
        assert await create_months(database, JANUARY) == []
        assert await drop_months(database, MARCH, keep_marked=False) == 0
        assert await counted(database) == [1, 1, 3, 1, 0]
        await keeper.aclose()
