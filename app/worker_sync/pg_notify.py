"""PostgreSQL's LISTEN and NOTIFY: a process hears of a change as soon as it is committed."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog
from sqlalchemy import NullPool, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from app.concurrency import TaskScope
from app.db.database import Database

_log = structlog.stdlib.get_logger(__name__)
_CHANNEL = "groundlane_changes"
_SILENT_S = 5.0
_RANDOM = random.SystemRandom()


async def notify(database: Database, connection: AsyncConnection, what: str) -> None:
    """Tell every listener when the transaction of ``connection`` is committed. Does nothing on SQLite."""
    if database.dialect == "postgresql":
        await connection.execute(select(func.pg_notify(_CHANNEL, what)))


class NotifyListener:
    """Calls ``told`` when somebody has notified, and when it begins to listen: what came before that it has not heard.

    It has a connection of its own, outside the pool, and gets another when that is lost, at growing intervals between
    ``retry_s``, in seconds. Every ``probe_s`` seconds it makes sure that the connection is still there. A notice may be
    missed all the same (a proxy that pools by transaction delivers none), so that nobody should rely on it alone.
    """

    def __init__(
        self,
        database: Database,
        told: Callable[[], None],
        *,
        retry_s: tuple[float, float] = (0.2, 15.0),
        probe_s: float = 30.0,
    ) -> None:
        self._told = told
        self._first_retry_s, self._last_retry_s = retry_s
        self._probe_s = probe_s
        self._engine = create_async_engine(
            database.engine.url,
            poolclass=NullPool,
            connect_args={"timeout": _SILENT_S, "command_timeout": _SILENT_S},
        )
        self._scope = TaskScope()

    def start(self) -> None:
        """Begin; returns at once. A database that is away is waited for."""
        self._scope.start(self._run())

    async def aclose(self) -> None:
        """Stop listening."""
        await self._scope.aclose()
        await self._engine.dispose()

    async def _run(self) -> None:
        away, retry_s = False, self._first_retry_s
        while True:
            try:
                async with self._connected() as (connection, lost):
                    if away:
                        _log.info("change_notices_back")
                    away, retry_s = False, self._first_retry_s
                    self._told()
                    await self._until(lost, connection)
            except Exception as error:  # drivers raise what they like; the changes are looked for meanwhile
                if not away:
                    _log.warning("change_notices_away", error=type(error).__name__)
                away = True
            # All workers lose the database in the same moment, and should not all come back in the same one.
            await asyncio.sleep(retry_s * _RANDOM.uniform(0.5, 1.0))
            retry_s = min(retry_s * 2, self._last_retry_s)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[Any, asyncio.Event]]:
        """The driver's connection, listening, and an event for when it is lost."""
        lost = asyncio.Event()
        async with self._engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            try:
                driver.add_termination_listener(lambda _: lost.set())
                await driver.add_listener(_CHANNEL, lambda *_: self._told())
                yield driver, lost
            finally:
                await connection.invalidate()  # whoever is away is not waited for

    async def _until(self, lost: asyncio.Event, connection: Any) -> None:
        while not lost.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._probe_s):
                    await lost.wait()
            if not lost.is_set():
                await connection.execute("SELECT 1")
        raise ConnectionError("the connection was closed")
