"""The event writer: a bounded queue, one transaction per batch, and a journal while the database is unavailable."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import structlog

from app.db.database import Database
from app.errors import EventLostError
from app.events.records import RecordedRequest
from app.events.serialization import Rows, dump, event_rows, load
from app.events.storage.insert import store
from app.events.storage.journal import Journal
from app.settings import EventDurability
from judges.concurrency import TaskScope

_log = structlog.stdlib.get_logger(__name__)
_SPILL_WAIT_S = 0.004
"""How long a reply waits when both queues are full. After that, its event is dropped and counted."""
_DRAIN_S = 5.0
_CLOSE_S = 5.0
"""How long closing waits for an unresponsive database before writing the remaining events to the journal."""


@dataclass(frozen=True, slots=True)
class _Entry:
    record: RecordedRequest
    stored: asyncio.Future[None] | None
    """A future that completes once the event is stored. None if no caller waits for it."""

    def rows(self) -> Rows | None:
        """Convert the event to rows, or return None if that fails. Such a failure is a bug, but it must not cause the
        loss of other events."""
        try:
            return event_rows(self.record.event())
        except Exception as error:
            _log.error("event_not_serializable", error=f"{type(error).__name__}: {error}")
            return None

    def settle(self, error: Exception | None = None) -> None:
        if self.stored is None or self.stored.done():
            return
        if error is None:
            self.stored.set_result(None)
        else:
            self.stored.set_exception(error)


def _rows_of(batch: Sequence[_Entry]) -> tuple[list[Rows], list[_Entry]]:
    """Return the rows of ``batch``, and the entries whose conversion failed."""
    found = [(entry, entry.rows()) for entry in batch]
    return [rows for _, rows in found if rows is not None], [entry for entry, rows in found if rows is None]


def default_journal(database: Database) -> Path:
    """Return the journal's default path: next to the database file, or in the working directory."""
    return (
        Path("groundlane.events") if database.path is None else database.path.with_name(database.path.name + ".events")
    )


class EventWriter:
    """An ``EventLog`` that writes to a database. Events that arrive before ``start`` or after ``aclose`` are accepted
    and wait for the next start.

    With ``batched`` durability, ``append`` returns immediately. A batch is written when it has ``batch_limit`` events
    or after ``linger_s`` seconds. With ``sync`` durability, ``append`` returns once the event is committed. Concurrent
    events share a commit. If the database is unavailable, or doesn't respond for ``patience_s`` seconds, ``append``
    returns once the event is fsynced to the journal.

    Batches that the database does not accept, and events beyond ``queue_limit``, go to the journal. If the journal
    fails too, events wait in memory, as long as there is room, until the database or the journal accepts them. The
    journal is replayed at startup and when the database is available again. The database is retried at growing
    intervals. ``retry_s`` contains the shortest and the longest interval. Keys are derived from the id of the request,
    which must be unique, so a replay adds nothing twice. Events whose content the database rejects are stored in
    ``<journal>.rejected``.

    The counters cover events since startup: ``written`` to the database, ``journaled``, ``dropped`` (lost, because the
    journal failed too) and ``rejected``. ``failures`` is the number of batches that the database did not accept.
    """

    def __init__(
        self,
        database: Database,
        *,
        durability: EventDurability = EventDurability.BATCHED,
        queue_limit: int = 10_000,
        journal_path: Path | None = None,
        batch_limit: int = 500,
        linger_s: float = 0.1,
        retry_s: tuple[float, float] = (0.5, 30.0),
        patience_s: float = 10.0,
    ) -> None:
        self.written = self.journaled = self.dropped = self.rejected = self.failures = 0
        self._database = database
        self._sync = durability is EventDurability.SYNC
        self._queue_limit, self._batch_limit, self._linger_s = queue_limit, batch_limit, linger_s
        self._journal = Journal(journal_path or default_journal(database))
        self._pending: deque[_Entry] = deque()
        self._spilled: deque[_Entry] = deque()
        self._wake, self._full, self._spill = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._spill_space, self._ending = asyncio.Event(), asyncio.Event()
        self._patience_s = patience_s
        self._disk_full = False
        """Whether the last write to the journal failed."""
        self._first_retry_s, self._last_retry_s = retry_s
        self._retry_s = self._first_retry_s
        self._retry_at: float | None = None
        """The time at which to retry the database. None while it is available."""
        self._closing = self._closed = False
        self._scope = TaskScope()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def queue_depth(self) -> int:
        """The number of events that are not yet in the database or the journal."""
        return len(self._pending) + len(self._spilled)

    @property
    def journal_bytes(self) -> int:
        """The number of bytes in the journal that still have to be replayed."""
        return self._journal.waiting

    async def start(self) -> None:
        """Adopt the journals of earlier processes and start writing. Raises OSError."""
        await asyncio.to_thread(self._journal.adopt)
        self._tasks = {self._scope.start(self._write()), self._scope.start(self._write_spilled())}

    async def append(self, record: RecordedRequest, /) -> None:
        """Log the event of ``record``. With ``batched`` durability, the call neither waits for the database nor raises.
        With ``sync``, it waits until the event is stored, and raises EventLostError if that fails."""
        stored = asyncio.get_running_loop().create_future() if self._sync else None
        entry = _Entry(record, stored)
        if self._closed:
            await self._spill_now([entry])
        elif len(self._pending) < self._queue_limit:
            self._pending.append(entry)
            self._wake.set()
            if len(self._pending) >= self._batch_limit:
                self._full.set()
        else:
            await self._append_spilled(entry)
        if stored is not None:
            await self._until(stored, entry)

    async def _until(self, stored: asyncio.Future[None], entry: _Entry) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await asyncio.shield(stored)
        except TimeoutError:
            # The event also stays in its queue. It may therefore be stored twice, but the second time adds no rows.
            if not await self._to_journal([entry]):
                raise EventLostError() from None

    async def _append_spilled(self, entry: _Entry) -> None:
        if len(self._spilled) >= self._queue_limit:
            self._spill_space.clear()
            try:
                async with asyncio.timeout(_SPILL_WAIT_S):
                    await self._spill_space.wait()
            except TimeoutError:
                self._lose([entry], TimeoutError("the journal cannot keep up"))
                return
        if self._closed:
            await self._spill_now([entry])
            return
        self._spilled.append(entry)
        self._spill.set()

    async def aclose(self) -> None:
        """Write pending events to the database or the journal, and stop."""
        self._closing = True
        for event in (self._wake, self._full, self._spill, self._ending):
            event.set()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_CLOSE_S)
        finally:
            await self._scope.aclose()
            self._closed = True
            self._keep([*self._pending, *self._spilled])
            self._journal.close()

    def _keep(self, left: Sequence[_Entry]) -> None:
        """Write the events that are still queued to the journal, without using a thread. Events are still queued if the
        tasks never ran or were cancelled."""
        self._pending.clear()
        self._spilled.clear()
        try:
            unmade = self._journal_rows(left) if left else []
        except OSError as error:
            self._lose(left, error)
        else:
            self._journaled(left, unmade)

    # The methods of the two background tasks. An entry leaves its queue only once it is stored, so no event is lost if
    # a task is cancelled.

    async def _write(self) -> None:
        while not self._closing or self._pending:
            await self._wait()
            if self._replay_due():
                await self._attempt(self._replay)
            if not await self._store_pending():
                if self._closing:
                    return
                await self._rest()
        deadline = asyncio.get_running_loop().time() + _DRAIN_S
        while self._replay_due() and asyncio.get_running_loop().time() < deadline:
            await self._attempt(self._replay)

    async def _store_pending(self) -> bool:
        """Store the next batch and return whether that succeeded. The batch's records, which contain a lot of text, are
        released on return."""
        batch = list(islice(self._pending, self._batch_limit))
        stored = not batch or await self._store(batch)
        for _ in batch if stored else ():
            self._pending.popleft()
        return stored

    async def _wait(self) -> None:
        """Wait until a batch is due, a replay is due, or the writer is closing."""
        if not self._pending and not self._closing and not self._replay_due():
            try:
                async with asyncio.timeout_at(self._retry_at if self._journal.waiting else None):
                    await self._wake.wait()
            except TimeoutError:
                return
        if not self._sync and 0 < len(self._pending) < self._batch_limit and not self._closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._linger_s):
                    await self._full.wait()
        self._wake.clear()
        self._full.clear()

    async def _rest(self) -> None:
        """Pause while neither the database nor the journal accepts events."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._first_retry_s):
                await self._ending.wait()

    async def _write_spilled(self) -> None:
        while not self._closing or self._spilled:
            await self._spill.wait()
            self._spill.clear()
            while self._spilled:
                await self._spill_batch()
                self._spill_space.set()
                self._wake.set()
            if self._closing:
                return

    async def _spill_batch(self) -> None:
        batch = list(self._spilled)
        await self._spill_now(batch)
        for _ in batch:
            self._spilled.popleft()

    # Storing.

    async def _store(self, batch: Sequence[_Entry]) -> bool:
        """Store ``batch`` in the database or the journal. Return False if both fail. Waiting callers are notified
        either way."""
        if self._due() and await self._attempt(lambda: self._insert(batch)):
            for entry in batch:
                entry.settle()
            return True
        if await self._to_journal(batch):
            return True
        for entry in batch:
            entry.settle(EventLostError())
        return False

    async def _insert(self, batch: Sequence[_Entry]) -> None:
        # The batch is converted in a thread. Converting its events one by one while requests are served would take many
        # times as long.
        rows, unmade = await asyncio.to_thread(_rows_of, batch)
        await self._insert_rows(rows)
        self._reject(unmade)

    async def _insert_rows(self, batch: Sequence[Rows]) -> None:
        refused = await store(self._database, batch)
        if refused:
            await asyncio.to_thread(self._journal.reject, [dump(rows) for rows in refused])
        self.rejected += len(refused)
        self.written += len(batch) - len(refused)

    async def _replay(self) -> None:
        payloads, done = await asyncio.to_thread(self._journal.replay, self._batch_limit)
        if payloads:
            await self._insert_rows([load(payload) for payload in payloads])
        await asyncio.to_thread(done)

    def _due(self) -> bool:
        return self._retry_at is None or asyncio.get_running_loop().time() >= self._retry_at

    def _replay_due(self) -> bool:
        return self._journal.waiting > 0 and self._due()

    async def _attempt(self, action: Callable[[], Awaitable[None]]) -> bool:
        """Run ``action`` and return whether it succeeded. This also records whether the database is available."""
        try:
            await action()
        except Exception as error:  # After any error, the events are kept and the writer continues.
            self.failures += 1
            if self._retry_at is None:
                _log.warning("event_database_unavailable", error=f"{type(error).__name__}: {error}")
            else:
                self._retry_s = min(self._retry_s * 2, self._last_retry_s)
            self._retry_at = asyncio.get_running_loop().time() + self._retry_s
            return False
        if self._retry_at is not None:
            _log.info("event_database_recovered")
            self._retry_at, self._retry_s = None, self._first_retry_s
        return True

    async def _to_journal(self, batch: Sequence[_Entry]) -> bool:
        try:
            unmade = await asyncio.to_thread(self._journal_rows, batch)
        except OSError as error:
            if not self._disk_full:
                _log.error("event_journal_unwritable", error=f"{type(error).__name__}: {error}")
            self._disk_full = True
            return False
        self._disk_full = False
        self._journaled(batch, unmade)
        return True

    def _journal_rows(self, batch: Sequence[_Entry]) -> list[_Entry]:
        """Write ``batch`` to the journal and return the entries whose conversion failed. Call this in a thread, except
        when closing."""
        rows, unmade = _rows_of(batch)
        self._journal.append([dump(each) for each in rows])
        return unmade

    def _journaled(self, batch: Sequence[_Entry], unmade: Sequence[_Entry]) -> None:
        self._reject(unmade)
        self.journaled += len(batch) - len(unmade)
        for entry in batch:
            entry.settle()

    def _reject(self, unmade: Sequence[_Entry]) -> None:
        self.rejected += len(unmade)
        for entry in unmade:
            entry.settle(EventLostError())

    async def _spill_now(self, batch: Sequence[_Entry]) -> None:
        """Write ``batch`` to the journal. If that fails, drop it, because there is no room in memory."""
        if not await self._to_journal(batch):
            self._lose(batch, OSError("the journal is not writable"))

    def _lose(self, batch: Sequence[_Entry], error: OSError) -> None:
        self.dropped += len(batch)
        _log.error("events_lost", count=len(batch), error=f"{type(error).__name__}: {error}")
        for entry in batch:
            entry.settle(EventLostError())
