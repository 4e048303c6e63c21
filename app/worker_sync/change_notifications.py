"""Notifies all workers of changes to policies, keys and secrets. The database contains a revision counter for each of
these kinds of data."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import structlog
from sqlalchemy import Integer, String, cast, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.database import Database
from app.db.tables import meta
from app.worker_sync.pg_notify import NotifyListener, notify
from judges.concurrency import TaskScope

_log = structlog.stdlib.get_logger(__name__)
_CLOSE_S = 1.0

Reload = Callable[[], Awaitable[None]]
"""A function that reloads the data that a counter tracks. Raises DatabaseUnavailableError."""


async def announce_change(database: Database, connection: AsyncConnection, name: str) -> None:
    """Announce a change to all workers. Call this function first in the transaction, because it takes a lock that
    serializes changes on PostgreSQL."""
    await connection.execute(database.insert_ignore(meta), [{"key": name, "value": "0"}])
    next_revision = cast(cast(meta.c.value, Integer) + 1, String)
    await connection.execute(update(meta).where(meta.c.key == name).values(value=next_revision))
    await notify(database, connection, name)


class ChangeWatcher:
    """Reloads data whenever its revision counter changes. On PostgreSQL, a notification triggers an immediate check. On
    both databases, the counter is also checked every ``poll_s`` seconds. While the database is unavailable, workers
    continue with the data that they have.
    """

    def __init__(self, database: Database, reloads: Mapping[str, Reload], *, poll_s: float = 0.5) -> None:
        self._database, self._reloads, self._poll_s = database, reloads, poll_s
        # The query is built once, because it runs repeatedly.
        self._query = select(meta.c.key, meta.c.value).where(meta.c.key.in_(list(reloads)))
        self._seen: dict[str, str] = {}
        self._scope = TaskScope()
        self._wake = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._listener = NotifyListener(database, self._wake.set) if database.dialect == "postgresql" else None

    async def start(self) -> None:
        """Reload everything once and start watching. Raises DatabaseUnavailableError."""
        self._seen = await self._stored()
        for reload in self._reloads.values():
            await reload()
        self._task = self._scope.start(self._run())
        if self._listener is not None:
            self._listener.start()

    async def aclose(self) -> None:
        """Stop watching. A running query may finish, but a query that hangs is cancelled."""
        if self._listener is not None:
            await self._listener.aclose()
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_CLOSE_S)
        await self._scope.aclose()

    async def _run(self) -> None:
        failing = False
        while not await self._stopped():
            try:
                await self._check()
            # The watcher continues after any error, because it would otherwise miss all later changes.
            except Exception as error:
                if not failing:
                    _log.warning("change_check_failed", error=type(error).__name__)
                failing = True
            else:
                if failing:
                    _log.info("change_check_recovered")
                failing = False

    async def _check(self) -> None:
        # The counters are read before the data. If a change happens in between, the data is reloaded once more, but no
        # change is missed.
        for name, revision in (await self._stored()).items():
            if revision != self._seen.get(name):
                await self._reloads[name]()
                self._seen[name] = revision

    async def _stored(self) -> dict[str, str]:
        query = self._query
        rows = await self._database.transact(lambda connection: connection.execute(query).all(), writes=False)
        return {key: value for key, value in rows}

    async def _stopped(self) -> bool:
        """Wait until the next check is due. Return True if the watcher must stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._poll_s):
                await self._wake.wait()
        self._wake.clear()
        return self._stopping
