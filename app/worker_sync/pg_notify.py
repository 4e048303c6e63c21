"""Uses PostgreSQL's LISTEN and NOTIFY to inform processes of a change as soon as it is committed."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog
from sqlalchemy import NullPool, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from app.db.database import Database
from judges.concurrency import TaskScope

_log = structlog.stdlib.get_logger(__name__)
_CHANNEL = "groundlane_changes"
_SILENT_S = 5.0
_RANDOM = random.SystemRandom()


async def notify(database: Database, connection: AsyncConnection, payload: str) -> None:
    """Notify all listeners when the transaction of ``connection`` commits. Does nothing on SQLite."""
    if database.dialect == "postgresql":
        await connection.execute(select(func.pg_notify(_CHANNEL, payload)))


class NotifyListener:
    """Calls ``callback`` on every notification, and when listening starts, because earlier notifications were missed.

    The listener uses a separate connection outside the pool, and checks this connection every ``probe_s`` seconds. If
    the connection is lost, the listener tries to reconnect at growing intervals. ``retry_s`` contains the shortest and
    the longest interval in seconds. Don't rely on notifications alone. Some may be missed, and a proxy that pools
    connections per transaction delivers none.
    """

    def __init__(
        self,
        database: Database,
        callback: Callable[[], None],
        *,
        retry_s: tuple[float, float] = (0.2, 15.0),
        probe_s: float = 30.0,
    ) -> None:
        self._callback = callback
        self._first_retry_s, self._last_retry_s = retry_s
        self._probe_s = probe_s
        self._engine = create_async_engine(
            database.engine.url,
            poolclass=NullPool,
            connect_args={"timeout": _SILENT_S, "command_timeout": _SILENT_S},
        )
        self._scope = TaskScope()

    def start(self) -> None:
        """Start listening and return immediately. While the database is unavailable, the listener keeps retrying."""
        self._scope.start(self._run())

    async def aclose(self) -> None:
        """Stop listening."""
        await self._scope.aclose()
        await self._engine.dispose()

    async def _run(self) -> None:
        failing, retry_s = False, self._first_retry_s
        while True:
            try:
                async with self._connected() as (connection, lost):
                    if failing:
                        _log.info("change_notifications_restored")
                    failing, retry_s = False, self._first_retry_s
                    self._callback()
                    await self._until(lost, connection)
            # Drivers raise many types of errors. Until the listener has reconnected, changes are found by polling.
            except Exception as error:
                if not failing:
                    _log.warning("change_notifications_lost", error=type(error).__name__)
                failing = True
            # All workers lose the database at the same moment. The pause is random, so that they don't all reconnect at
            # once.
            await asyncio.sleep(retry_s * _RANDOM.uniform(0.5, 1.0))
            retry_s = min(retry_s * 2, self._last_retry_s)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[Any, asyncio.Event]]:
        """Open the driver's listening connection. Yield it with an event that is set when the connection is lost."""
        lost = asyncio.Event()
        async with self._engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            try:
                driver.add_termination_listener(lambda _: lost.set())
                await driver.add_listener(_CHANNEL, lambda *_: self._callback())
                yield driver, lost
            finally:
                await connection.invalidate()  # Don't wait for an unavailable server.

    async def _until(self, lost: asyncio.Event, connection: Any) -> None:
        while not lost.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._probe_s):
                    await lost.wait()
            if not lost.is_set():
                await connection.execute("SELECT 1")
        raise ConnectionError("the connection was closed")
