"""Counters in the database by which a process sees what others have changed."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import structlog
from sqlalchemy import Integer, String, cast, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.concurrency import TaskScope
from app.db.database import Database
from app.db.tables import meta
from app.worker_sync.pg_notify import NotifyListener, notify

_log = structlog.stdlib.get_logger(__name__)
_CLOSE_S = 1.0

Reload = Callable[[], Awaitable[None]]
"""Reads again what a counter stands for. Raises DatabaseUnavailableError."""


async def announce_change(database: Database, connection: AsyncConnection, name: str) -> None:
    """Count a change, first of all in its transaction: on PostgreSQL its lock puts changes into one order."""
    await connection.execute(database.insert_ignore(meta), [{"key": name, "value": "0"}])
    raised = cast(cast(meta.c.value, Integer) + 1, String)
    await connection.execute(update(meta).where(meta.c.key == name).values(value=raised))
    await notify(database, connection, name)


class ChangeWatcher:
    """Calls the reader of a counter whenever that has another value.

    On PostgreSQL it is told of changes and looks at once. Beside that, and on SQLite only so, it looks every ``poll_s``
    seconds. While the database is away, everybody goes on with what they know.
    """

    def __init__(self, database: Database, readers: Mapping[str, Reload], *, poll_s: float = 0.5) -> None:
        self._database, self._readers, self._poll_s = database, readers, poll_s
        # Made once, since it is asked over and over.
        self._query = select(meta.c.key, meta.c.value).where(meta.c.key.in_(list(readers)))
        self._seen: dict[str, str] = {}
        self._scope = TaskScope()
        self._wake = asyncio.Event()
        self._stopping = False
        self._looking: asyncio.Task[None] | None = None
        self._listener = NotifyListener(database, self._wake.set) if database.dialect == "postgresql" else None

    async def start(self) -> None:
        """Call every reader once and keep looking. Raises DatabaseUnavailableError."""
        self._seen = await self._stored()
        for read in self._readers.values():
            await read()
        self._looking = self._scope.start(self._run())
        if self._listener is not None:
            self._listener.start()

    async def aclose(self) -> None:
        """Stop looking. A query in progress may end; one that hangs is cancelled."""
        if self._listener is not None:
            await self._listener.aclose()
        self._stopping = True
        self._wake.set()
        if self._looking is not None:
            await asyncio.wait({self._looking}, timeout=_CLOSE_S)
        await self._scope.aclose()

    async def _run(self) -> None:
        away = False
        while not await self._stopped():
            try:
                await self._look()
            except Exception as error:  # whatever went wrong, who looked no more would miss every change to come
                if not away:
                    _log.warning("revision_database_away", error=type(error).__name__)
                away = True
            else:
                if away:
                    _log.info("revision_database_back")
                away = False

    async def _look(self) -> None:
        # The counters first: a change in between is then seen twice rather than not at all.
        for name, revision in (await self._stored()).items():
            if revision != self._seen.get(name):
                await self._readers[name]()
                self._seen[name] = revision

    async def _stored(self) -> dict[str, str]:
        query = self._query
        rows = await self._database.transact(lambda connection: connection.execute(query).all(), writes=False)
        return {key: value for key, value in rows}

    async def _stopped(self) -> bool:
        """Wait until it is time to look; True: no more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._poll_s):
                await self._wake.wait()
        self._wake.clear()
        return self._stopping
