"""Deletes expired events. If the event log is partitioned, each expired month is dropped as a whole. The rest is
deleted in small batches, so that other work doesn't have to wait."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import structlog
from sqlalchemy import Column, Select, Table, and_, delete, exists, func, or_, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.auth.audit_log import acting_as, note
from app.db.database import Database, DatabaseUnavailableError
from app.db.partitions import drop_months
from app.db.search_index import delete_entries
from app.db.tables import EVENT_TABLES, MARKS, feedback, meta, requests, runs
from app.events.rollups.rollup_update import ROLLED_UP_COLUMNS, subtract_from_rollups
from app.events.serialization import Rows
from judges.concurrency import TaskScope

_log = structlog.stdlib.get_logger(__name__)
_BATCH = 500
_PAUSE_S = 0.02
"""The pause between two batches, so that a waiting writer can proceed."""
_EVERY_S = 3600.0
_LAST_RUN = "retention_at"
_JUMP = timedelta(minutes=10)
"""If the system clock deviates from the monotonic clock by more than this, it is assumed to have been changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """The number of requests and runs that were deleted, or would be. Decisions, claims, documents and feedback are
    deleted with their request."""

    requests: int
    runs: int


async def prune(
    database: Database, before: datetime, *, keep_marked: bool = False, dry_run: bool = False, batch: int = _BATCH
) -> Pruned:
    """Delete requests older than ``before``, with their dependent rows, and runs that have not changed since then.

    With ``keep_marked``, requests with feedback are kept. With ``dry_run``, rows are only counted. Each month and each
    batch of ``batch`` requests is deleted in a separate transaction. If one fails, the earlier deletions remain.
    Deletions are recorded in the audit log. Raises DatabaseUnavailableError.
    """
    old_requests = select(requests.c.request_id, requests.c.ts).where(requests.c.ts < before).order_by(requests.c.ts)
    if keep_marked:
        old_requests = old_requests.where(~exists().where(feedback.c.request_id == requests.c.request_id))
    old_runs = select(runs.c.run_id).where(and_(runs.c.created_at < before, runs.c.updated_at < before))
    if dry_run:
        return Pruned(requests=await _count(database, old_requests), runs=await _count(database, old_runs))
    dropped = await drop_months(database, before, keep_marked=keep_marked)
    gone = Pruned(
        requests=dropped + await _delete(database, old_requests, batch, _delete_requests),
        runs=await _delete(database, old_runs.order_by(runs.c.created_at), batch, _delete_runs),
    )
    if gone.requests or gone.runs:
        async with database.write() as connection:
            after = {"before": before.isoformat(), "requests": gone.requests, "runs": gone.runs}
            await note(connection, "events.prune", "events", after=after)
    return gone


async def _count(database: Database, query: Select[Any]) -> int:
    async with database.read() as connection:
        counted = await connection.execute(select(func.count()).select_from(query.order_by(None).subquery()))
    return int(counted.scalar_one())


_Delete = Callable[[AsyncConnection, Sequence[Any]], Awaitable[None]]


async def _delete(database: Database, query: Select[Any], batch: int, delete_these: _Delete) -> int:
    count = 0
    while True:
        async with database.write() as connection:
            found = (await connection.execute(query.limit(batch))).all()
            if found:
                await delete_these(connection, found)
        count += len(found)
        if len(found) < batch:
            return count
        await asyncio.sleep(_PAUSE_S)


async def _delete_requests(connection: AsyncConnection, found: Sequence[Any]) -> None:
    """Delete requests and their dependent rows. The requests must be sorted oldest first."""
    ids = [row.request_id for row in found]
    gone: dict[str, list[dict[str, Any]]] = {}
    # Children first: on SQLite they would be deleted with the requests, without being returned.
    for table in reversed(EVENT_TABLES):
        of_these = table.c.request_id.in_(ids), table.c.ts.between(found[0].ts, found[-1].ts)
        deleted = delete(table).where(*of_these).returning(*_rolled_up(table))
        gone[table.name] = [{**row} for row in (await connection.execute(deleted)).mappings()]
    await connection.run_sync(subtract_from_rollups, _events(gone))
    await connection.run_sync(delete_entries, ids, found[0].ts, found[-1].ts)
    # Marks are deleted after the requests, which can then no longer receive any.
    for table in MARKS:
        await connection.execute(delete(table).where(table.c.request_id.in_(ids)))


def _rolled_up(table: Table) -> list[Column[Any]]:
    """Return the columns of the deleted rows that the rollups need."""
    return [table.c[name] for name in ROLLED_UP_COLUMNS.get(table.name, ["request_id"])]


def _events(rows: Rows) -> list[Rows]:
    decided: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows["decisions"]:
        decided[row["request_id"]].append(row)
    return [{"requests": [row], "decisions": decided[row["request_id"]]} for row in rows["requests"]]


async def _delete_runs(connection: AsyncConnection, found: Sequence[Any]) -> None:
    await connection.execute(delete(runs).where(runs.c.run_id.in_([row.run_id for row in found])))


class Retention:
    """Prunes the database once an hour, in one of the processes that share it.

    If the system clock was changed since the last pruning, the next pruning is skipped. A wrong clock could cause too
    many deletions, and skipping one pruning leaves an hour to correct it.
    """

    def __init__(self, database: Database, *, days: int, every_s: float = _EVERY_S) -> None:
        self._database, self._kept, self._every_s = database, timedelta(days=days), every_s
        self._scope = TaskScope()
        self._seen = datetime.now(UTC), monotonic()

    def start(self) -> None:
        self._scope.start(self._run())

    async def aclose(self) -> None:
        await self._scope.aclose()

    async def _run(self) -> None:
        while True:
            try:
                if not self._clock_changed() and await self._turn():
                    with acting_as("retention"):
                        gone = await prune(self._database, datetime.now(UTC) - self._kept)
                    _log.info("events_pruned", requests=gone.requests, runs=gone.runs)
            except (DatabaseUnavailableError, SQLAlchemyError) as error:
                _log.warning("prune_failed", error=type(error).__name__)
            await asyncio.sleep(self._every_s)

    def _clock_changed(self) -> bool:
        """Return whether the system clock was changed since the last call."""
        before, now = self._seen, (datetime.now(UTC), monotonic())
        self._seen = now
        jump = now[0] - before[0] - timedelta(seconds=now[1] - before[1])
        if abs(jump) <= _JUMP:
            return False
        _log.warning("clock_changed", by_s=round(jump.total_seconds()), pruning="postponed")
        return True

    async def _turn(self) -> bool:
        """Return whether this process should prune now, because the last pruning by any process was long enough ago."""
        now = datetime.now(UTC)
        due = (now - timedelta(seconds=self._every_s / 2)).isoformat()
        # If the last pruning seems to be in the future, the clock of the process that recorded it was ahead. The others
        # must not wait until that time.
        ahead = (now + timedelta(seconds=self._every_s)).isoformat()
        async with self._database.write() as connection:
            await connection.execute(self._database.insert_ignore(meta), [{"key": _LAST_RUN, "value": ""}])
            mine = meta.c.key == _LAST_RUN, or_(meta.c.value <= due, meta.c.value > ahead)
            taken = await connection.execute(update(meta).where(*mine).values(value=now.isoformat()))
        return taken.rowcount == 1
