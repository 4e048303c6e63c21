"""Creates and drops the monthly partitions of the event log.

On PostgreSQL, the event log is partitioned by the time of the request, in UTC, so that a whole month can be dropped in
one step. On SQLite, these functions do nothing. A row whose month has no partition is stored in the default partition
until the month's partition is created. Lock timeouts are short, because other transactions queue behind a transaction
that waits for a lock. After a timeout, the operation backs off and retries.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

import structlog
from sqlalchemy import MetaData, Table, delete, func, insert, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.database import Database, DatabaseUnavailableError
from app.db.rollup_tables import STATISTICS, in_days
from app.db.search_index import PARTITIONED
from app.db.tables import MARKS, feedback, requests
from judges.concurrency import TaskScope

_log = structlog.stdlib.get_logger(__name__)
T = TypeVar("T")

_AHEAD = 2
"""The number of future months to create partitions for."""
_EVERY_S, _RETRY_S = 86_400.0, 60.0
_LOCK = 0x6D6F6E746873  # An arbitrary number, the same in every process.
_LOCK_TIMEOUT_MS = 100
"""The lock timeout. Eight timeouts in a row take less time than PostgreSQL's deadlock timeout. In a deadlock, this
operation therefore gives up first, and PostgreSQL doesn't abort a transaction that stores or reads events."""
_ATTEMPTS = 5
_PAUSE_S = 0.1
_IN_USE = ("55P03", "40P01")
"""PostgreSQL's error codes for a lock timeout and a deadlock."""


class MonthInUseError(Exception):
    """Other transactions kept a table locked for too long."""


async def create_months(database: Database, now: datetime) -> list[datetime]:
    """Create the partitions for this month, for future months, and for all months with rows in the default partition.

    Return the first day of each month for which partitions were created. The list is empty if another process is
    already creating partitions. Raises MonthInUseError or DatabaseUnavailableError.
    """
    made: list[datetime] = []
    if database.dialect == "sqlite":
        return made
    while (month := await _with_retries(partial(_create_next, database, now))) is not None:
        _log.info("partition_created", month=f"{month:%Y-%m}")
        made.append(month)
    return made


async def drop_months(database: Database, before: datetime, *, keep_marked: bool) -> int:
    """Drop the partitions of months that ended by ``before``, with the feedback and labels on their requests. Return
    the number of requests deleted.

    Partitions that cannot be locked in time are skipped. With ``keep_marked``, months with feedback are skipped too;
    their other rows must be deleted individually. Raises DatabaseUnavailableError.
    """
    if database.dialect == "sqlite":
        return 0
    async with database.read() as connection:
        months = await _months(connection)
    count = 0
    for month in sorted(month for month in months if next_month(month) <= before):
        try:
            gone = await _with_retries(partial(_drop, database, month, keep_marked))
        except MonthInUseError:
            _log.warning("partition_in_use", month=f"{month:%Y-%m}")
            continue
        if gone is not None:
            _log.info("partition_dropped", month=f"{month:%Y-%m}", requests=gone)
            count += gone
    return count


def month_of(time: datetime) -> datetime:
    """Return the beginning of the month that contains ``time``, in UTC."""
    return time.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def next_month(month: datetime) -> datetime:
    """Return the beginning of the month after ``month``."""
    return month_of(month + timedelta(days=31))


async def _with_retries(action: Callable[[], Awaitable[T]]) -> T:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return await action()
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in _IN_USE:
                raise
        await asyncio.sleep(_PAUSE_S * attempt)
    raise MonthInUseError


async def _lock(connection: AsyncConnection) -> bool:
    """Prevent other processes from creating or dropping partitions until the transaction ends. Return False if another
    process holds this lock."""
    await connection.execute(text(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MS}"))
    taken = await connection.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _LOCK})
    return bool(taken.scalar_one())


async def _months(connection: AsyncConnection) -> Mapping[datetime, set[str]]:
    """Return the months that have partitions, with the names of the partitions."""
    query = text(
        "SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid"
        " WHERE inhparent = to_regclass(:name)"
    )
    found: dict[datetime, set[str]] = defaultdict(set)
    for table in (each.name for each in PARTITIONED):
        for name in (await connection.execute(query, {"name": table})).scalars():
            try:
                month = datetime.strptime(name, f"{table}_%Y_%m").replace(tzinfo=UTC)
            except ValueError:
                continue  # The default partition, or one that this module didn't create.
            found[month].add(table)
    return found


async def _create_next(database: Database, now: datetime) -> datetime | None:
    async with database.write() as connection:
        if not await _lock(connection):
            return None
        months = await _months(connection)
        wanted = [month_of(now)]
        for _ in range(_AHEAD):
            wanted.append(next_month(wanted[-1]))
        strays = select(func.date_trunc("month", _named(requests, "default").c.ts, "UTC")).distinct()
        wanted += (await connection.execute(strays)).scalars()
        for month in sorted(wanted):
            if missing := [table for table in PARTITIONED if table.name not in months.get(month, ())]:
                await _create_month(connection, month, missing)
                return month
    return None


async def _create_month(connection: AsyncConnection, month: datetime, tables: Sequence[Table]) -> None:
    end = next_month(month)
    # Until this is done, no other transaction may insert a row into the default partition, because the row might belong
    # to the new partition.
    await _execute(connection, f"LOCK TABLE {_only(PARTITIONED)} IN SHARE ROW EXCLUSIVE MODE")
    await _execute(connection, f"LOCK TABLE {_only(_named(table, 'default') for table in tables)}")
    for table in tables:
        default, partition = _named(table, "default"), _named(table, _suffix(month))
        # Create the partition as a separate table, and attach it once it contains the misplaced rows. This way, readers
        # of other months can continue.
        await _execute(connection, f"CREATE TABLE {partition} (LIKE {table} INCLUDING ALL)")
        strays = delete(default).where(default.c.ts >= month, default.c.ts < end).returning(*default.c).cte("strays")
        names = [column.name for column in partition.c if column.computed is None]
        moved = select(*(strays.c[name] for name in names))
        await connection.execute(insert(partition).from_select(names, moved))
        bounds = f"FROM ('{month.isoformat()}') TO ('{end.isoformat()}')"
        await _execute(connection, f"ALTER TABLE {table} ATTACH PARTITION {partition} FOR VALUES {bounds}")


async def _drop(database: Database, month: datetime, keep_marked: bool) -> int | None:
    """Drop a month. Return the number of requests deleted, or None if the month is kept or does not exist."""
    old = [_named(table, _suffix(month)) for table in PARTITIONED]
    ids = select(old[0].c.request_id)
    marked = select(feedback.c.id).where(feedback.c.request_id.in_(ids)).limit(1)
    async with database.write() as connection:
        if not await _lock(connection) or len((await _months(connection)).get(month, ())) < len(old):
            return None
        count = int((await connection.execute(select(func.count()).select_from(old[0]))).scalar_one())
        await _execute(connection, f"LOCK TABLE {_only(PARTITIONED)}")
        if keep_marked and (await connection.execute(marked)).first() is not None:
            return None
        for table in MARKS:
            await connection.execute(delete(table).where(table.c.request_id.in_(ids)))
        await _execute(connection, f"DROP TABLE {', '.join(str(table) for table in old)}")
        for counted in STATISTICS:
            await connection.execute(delete(counted).where(*in_days(counted, month, next_month(month))))
    return count


def _suffix(month: datetime) -> str:
    return f"{month:%Y_%m}"


def _named(table: Table, suffix: str) -> Table:
    """Return the partition of ``table`` with ``suffix``."""
    return table.to_metadata(MetaData(), name=f"{table.name}_{suffix}")


def _only(tables: Iterable[Table]) -> str:
    return ", ".join(f"ONLY {table}" for table in tables)


async def _execute(connection: AsyncConnection, statement: str) -> None:
    await connection.exec_driver_sql(statement)


class PartitionKeeper:
    """Creates future partitions at startup and once a day."""

    def __init__(self, database: Database, *, every_s: float = _EVERY_S, retry_s: float = _RETRY_S) -> None:
        self._database, self._every_s, self._retry_s = database, every_s, retry_s
        self._scope = TaskScope()

    async def start(self) -> None:
        """Create missing partitions and start the daily task. Errors are never raised, because storing events does not
        depend on the partitions."""
        if self._database.dialect != "sqlite":
            wait_s = await self._create()
            self._scope.start(self._run(wait_s))

    async def aclose(self) -> None:
        await self._scope.aclose()

    async def _run(self, wait_s: float) -> None:
        while True:
            await asyncio.sleep(wait_s)
            wait_s = await self._create()

    async def _create(self) -> float:
        """Create missing partitions. Return the number of seconds until the next attempt."""
        try:
            await create_months(self._database, datetime.now(UTC))
        except (DatabaseUnavailableError, MonthInUseError, SQLAlchemyError) as error:
            _log.warning("partitions_not_created", error=type(error).__name__)
            return self._retry_s
        return self._every_s
