"""The contract of ``app.db.database`` on SQLite and PostgreSQL."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import insert, literal, select, text, update
from sqlalchemy.exc import IntegrityError, StatementError

from app.db.database import Database, DatabaseUnavailableError, DatabaseUrlError
from app.db.schema import SchemaError, autogenerate_options, check_schema, upgrade
from app.db.tables import decisions, meta, metadata, run_steps, runs

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]


async def test_migrated_schema_equals_the_tables(open_database: Open) -> None:
    async with open_database() as database, database.read() as connection:
        differences = await connection.run_sync(
            lambda sync: compare_metadata(
                MigrationContext.configure(sync, opts=autogenerate_options(database.dialect)), metadata
            )
        )
    assert differences == []


def test_upgrading_again_keeps_the_data(database_url: str) -> None:
    async def revision(value: str | None) -> str:
        database = Database(database_url)
        async with database.write() as connection:
            if value is not None:
                await connection.execute(update(meta).values(value=value))
            found = (await connection.execute(select(meta.c.value))).scalar_one()
        await database.aclose()
        return str(found)

    assert asyncio.run(revision("7")) == "7"
    upgrade(database_url)
    assert asyncio.run(revision(None)) == "7"


@pytest.mark.slow
def test_concurrent_workers_all_find_the_tables(empty_url: str) -> None:
    code = f"from app.db.schema import upgrade; input(); upgrade({empty_url!r})"
    workers = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) for _ in range(3)]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(b"go\n")
        worker.stdin.close()
    assert [worker.wait(300) for worker in workers] == [0, 0, 0]

    async def check() -> None:
        database = Database(empty_url)
        await check_schema(database)
        await database.aclose()

    asyncio.run(check())


@pytest.mark.slow
def test_migrations_are_found_from_any_working_directory(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "migrations").mkdir()
    code = f"from app.db.schema import upgrade; upgrade({sqlite_url!r})"
    subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "groundlane.db").exists()


async def test_database_without_tables_is_rejected_with_instructions(empty_url: str) -> None:
    database = Database(empty_url)
    with pytest.raises(SchemaError, match="run `groundlane db upgrade`"):
        await check_schema(database)
    await database.aclose()


async def test_times_are_aware_and_in_utc_from_any_zone(open_database: Open) -> None:
    moment = datetime(2026, 3, 1, 1, 30, 0, 123456, tzinfo=timezone(timedelta(hours=2)))
    row = {"run_id": "r", "status": "open", "version": 1, "state": {}, "created_at": moment, "updated_at": moment}
    async with open_database() as database:
        async with database.write() as connection:
            await connection.execute(insert(runs), row)
        async with database.read() as connection:
            found = (await connection.execute(select(runs.c.created_at))).scalar_one()
    assert found == datetime(2026, 2, 28, 23, 30, 0, 123456, tzinfo=UTC)
    assert found.tzinfo is UTC


async def test_naive_time_is_rejected(open_database: Open) -> None:
    async with open_database() as database:
        with pytest.raises(StatementError, match="without a time zone"):
            async with database.write() as connection:
                await connection.execute(select(runs).where(runs.c.created_at < datetime(2026, 1, 1)))


async def test_failed_write_leaves_nothing(open_database: Open) -> None:
    async def fail(database: Database) -> None:
        async with database.write() as connection:
            await connection.execute(insert(meta), {"key": "a", "value": "1"})
            raise RuntimeError

    async with open_database() as database:
        with pytest.raises(RuntimeError):
            await fail(database)
        async with database.read() as connection:
            assert (await connection.execute(select(meta).where(meta.c.key == "a"))).all() == []


async def test_foreign_keys_are_enforced(open_database: Open) -> None:
    row = {"run_id": "missing", "seq": 0, "ts": datetime.now(UTC), "kind": "x", "data": {}, "decisions": []}
    async with open_database() as database:
        with pytest.raises(IntegrityError):
            async with database.write() as connection:
                await connection.execute(insert(run_steps), row)


async def test_existing_rows_are_skipped(open_database: Open) -> None:
    async with open_database() as database:
        for value in ("1", "2"):
            async with database.write() as connection:
                await connection.execute(database.insert_ignore(meta), [{"key": "a", "value": value}])
        async with database.read() as connection:
            found = await connection.execute(select(meta.c.value).where(meta.c.key == "a"))
            assert found.scalars().all() == ["1"]


async def test_rows_are_found_among_any_number_of_values(open_database: Open) -> None:
    """More than PostgreSQL takes as parameters of one statement."""
    values = ["it's", 'a "b"', "x,y", "{}", "é\n", *(f"value {number}" for number in range(70_000))]
    async with open_database() as database, database.read() as connection:
        for wanted, found in ((values, True), (values[1:], False), ([], False)):
            query = select(database.among(literal("it's"), wanted))
            assert bool((await connection.execute(query)).scalar_one()) is found


@pytest.mark.postgres
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_postgres_connections_compile_no_statements(open_database: Open) -> None:
    async with open_database() as database:
        for _ in range(2):  # The setting outlives the first transaction.
            async with database.read() as connection:
                assert (await connection.execute(text("SHOW jit"))).scalar_one() == "off"


async def test_concurrent_changes_do_not_overwrite_each_other(open_database: Open) -> None:
    async def add(database: Database) -> None:
        async with database.write() as connection:
            await connection.execute(text("UPDATE meta SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)"))

    async with open_database() as database, asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(add(database))
    async with open_database() as database, database.read() as connection:
        assert (await connection.execute(select(meta.c.value))).scalar_one() == "20"


@pytest.mark.parametrize("durable", [False, True])
async def test_sqlite_uses_a_write_ahead_log_and_waits_for_locks(sqlite_url: str, durable: bool) -> None:
    database = Database(sqlite_url, durable=durable, busy_timeout_s=1.5)
    found = {}
    async with database.read() as connection:
        for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout"):
            found[name] = (await connection.execute(text(f"PRAGMA {name}"))).scalar_one()
    await database.aclose()
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2 if durable else 1,
        "foreign_keys": 1,
        "busy_timeout": 1500,
    }


async def test_filters_use_an_index_in_order(sqlite_url: str) -> None:
    await asyncio.to_thread(upgrade, sqlite_url)
    database = Database(sqlite_url)
    ordered = select(decisions.c.id).order_by(decisions.c.ts.desc(), decisions.c.id.desc()).limit(5)
    async with database.read() as connection:
        for column in ("agent", "model", "policy_id", "phase", "action", "reason_code"):
            query = ordered.where(decisions.c[column] == "x").compile(compile_kwargs={"literal_binds": True})
            plan = str((await connection.execute(text(f"EXPLAIN QUERY PLAN {query}"))).all())
            assert f"ix_decisions_{column}_ts_id" in plan
            assert "TEMP B-TREE" not in plan
    await database.aclose()


async def test_unopenable_database_is_unavailable(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/missing/groundlane.db")
    with pytest.raises(DatabaseUnavailableError, match="unable to open database file"):
        await database.ping()
    await database.aclose()


@pytest.mark.postgres
async def test_unreachable_server_is_unavailable() -> None:
    pytest.importorskip("asyncpg")
    database = Database("postgresql+asyncpg://groundlane@127.0.0.1:9/groundlane")
    with pytest.raises(DatabaseUnavailableError):
        await database.ping()
    await database.aclose()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "invalid database URL"),
        ("mysql+aiomysql://host/name", "unsupported database 'mysql\\+aiomysql'"),
        ("sqlite+aiosqlite://", "needs a file"),
        ("sqlite+aiosqlite:///:memory:", "needs a file"),
        ("sqlite+aiosqlite:///file:x?mode=memory&uri=true", "needs a file"),
        ("sqlite+aiosqlite:///x.db?timeout=long", "has an invalid option"),
        ("postgresql+asyncpg://host:port/name", "invalid database URL"),
    ],
)
def test_unsupported_url_is_rejected_with_one_line(url: str, message: str) -> None:
    with pytest.raises(DatabaseUrlError, match=message):
        Database(url)
