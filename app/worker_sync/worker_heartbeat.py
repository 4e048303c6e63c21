"""Tracks the live worker processes, and the policy versions that each process has loaded."""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import uuid4

import structlog
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from app.db.database import Database, DatabaseUnavailableError
from app.db.tables import workers
from judges.concurrency import TaskScope

_log = structlog.stdlib.get_logger(__name__)

RENEW_S = 5.0
_ALIVE = timedelta(seconds=4 * RENEW_S)
_FORGOTTEN = timedelta(hours=1)
_CLOSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorker:
    """A worker process. ``versions`` maps policy ids to the versions that the worker loaded at ``loaded_at``."""

    id: str
    host: str
    pid: int
    versions: Mapping[str, int]
    started_at: datetime
    loaded_at: datetime
    seen_at: datetime


class LoadedPolicies(Protocol):
    """The policies whose versions the heartbeat reports."""

    @property
    def loaded_versions(self) -> Mapping[str, int]: ...

    def watch(self, callback: Callable[[], None]) -> None:
        """Register ``callback``, which is called each time policies are loaded."""
        ...


async def live_workers(database: Database) -> Sequence[LiveWorker]:
    """Return the workers with a recent heartbeat, oldest first. Raises DatabaseUnavailableError."""
    query = select(workers).where(workers.c.seen_at >= datetime.now(UTC) - _ALIVE).order_by(workers.c.started_at)
    async with database.read() as connection:
        return [LiveWorker(**row._mapping) for row in (await connection.execute(query)).all()]


class WorkerHeartbeat:
    """Keeps this worker's database row up to date. The row is written immediately after policies are loaded, and every
    ``renew_s`` seconds to show that the worker is alive. While the database is unavailable, the heartbeat keeps
    retrying, and nothing else waits for it."""

    def __init__(self, database: Database, policies: LoadedPolicies, *, renew_s: float = RENEW_S) -> None:
        self._database, self._policies, self._renew_s = database, policies, renew_s
        self.id = f"wrk_{uuid4().hex}"
        self._started_at = self._loaded_at = datetime.now(UTC)
        self._written: dict[str, Any] | None = None
        self._wake = asyncio.Event()
        self._stopping = False
        self._scope = TaskScope()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the heartbeat and return immediately."""
        self._policies.watch(self._note)
        self._task = self._scope.start(self._run())

    async def aclose(self) -> None:
        """Remove the worker's row, without waiting long for an unavailable database."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_CLOSE_S)
        await self._scope.aclose()

    def _note(self) -> None:
        self._loaded_at = datetime.now(UTC)
        self._wake.set()

    async def _run(self) -> None:
        failing = False
        while not self._stopping:
            self._wake.clear()
            try:
                await self._renew()
            except (DatabaseUnavailableError, SQLAlchemyError) as error:
                if not failing:
                    _log.warning("worker_heartbeat_failed", error=type(error).__name__)
                failing = True
            else:
                failing = False
            with suppress(TimeoutError):
                async with asyncio.timeout(self._renew_s):
                    await self._wake.wait()
        with suppress(DatabaseUnavailableError, SQLAlchemyError):
            async with self._database.write() as connection:
                await connection.execute(delete(workers).where(workers.c.id == self.id))

    async def _renew(self) -> None:
        now = datetime.now(UTC)
        loaded = {"versions": dict(self._policies.loaded_versions), "loaded_at": self._loaded_at}
        async with self._database.write() as connection:
            changes = {"seen_at": now} if loaded == self._written else {"seen_at": now, **loaded}
            mine = update(workers).where(workers.c.id == self.id).values(changes)
            # The row doesn't exist at first, or after another worker has deleted it as stale.
            if (await connection.execute(mine)).rowcount == 0:
                row = {"id": self.id, "host": socket.gethostname(), "pid": os.getpid(), "started_at": self._started_at}
                await connection.execute(insert(workers), row | {"seen_at": now, **loaded})
                await connection.execute(delete(workers).where(workers.c.seen_at < now - _FORGOTTEN))
        self._written = loaded
