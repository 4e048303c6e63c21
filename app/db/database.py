"""Read and write transactions on one engine, with the same API for SQLite and PostgreSQL."""

import asyncio
import json
import os
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
from sqlalchemy import (
    ARRAY,
    URL,
    ColumnElement,
    Connection,
    Engine,
    String,
    Table,
    any_,
    create_engine,
    event,
    func,
    literal,
    make_url,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

_MIGRATION_LOCK = 0x67726F756E64  # An arbitrary number, the same in every process.
_CLOSE_S = 1.0
"""The maximum time to wait for a PostgreSQL server to confirm that a connection is closed."""
_Result = TypeVar("_Result")


class DatabaseUrlError(ValueError):
    """The database URL is invalid. The message is one line."""


class DatabaseUnavailableError(Exception):
    """The database cannot be reached, is locked, or is not writable. A later attempt may succeed."""


class Database:
    """Connections to one database.

    ``url`` is ``sqlite+aiosqlite:///file`` or ``postgresql+asyncpg://…``. With ``durable``, commits on SQLite survive a
    power loss; on PostgreSQL, this depends on the server's configuration. ``busy_timeout_s`` limits how long to wait
    for a locked or unresponsive database. ``command_timeout_s`` limits how long a statement on PostgreSQL may take;
    None means no limit. Raises DatabaseUrlError.
    """

    def __init__(
        self, url: str, *, durable: bool = False, busy_timeout_s: float = 5.0, command_timeout_s: float | None = 60.0
    ) -> None:
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):
            raise DatabaseUrlError("invalid database URL") from None
        self.dialect = parsed.get_backend_name()
        self.path: Path | None = None
        # SQLite allows one writer at a time. This lock is fair and cheap; SQLite itself would wait in a busy loop.
        self._writer: asyncio.Lock | None = None
        arguments: dict[str, Any]
        match parsed.drivername:
            case "sqlite+aiosqlite":
                if parsed.database in (None, "", ":memory:") or "uri" in parsed.query:
                    raise DatabaseUrlError("an SQLite database needs a file: sqlite+aiosqlite:///groundlane.db")
                self.path = Path(str(parsed.database)).absolute()
                self._writer = asyncio.Lock()
                # Without an isolation level, the driver doesn't start transactions. ``_set_up_sqlite`` starts them.
                arguments = {
                    "timeout": busy_timeout_s,
                    "isolation_level": None,
                    "async_creator_fn": _open_sqlite,
                }
            case "postgresql+asyncpg":
                arguments = {
                    "timeout": busy_timeout_s,
                    "command_timeout": command_timeout_s,
                    "connection_class": _postgres_connection(),
                }
            case driver:
                raise DatabaseUrlError(f"unsupported database {driver!r}: use sqlite+aiosqlite or postgresql+asyncpg")
        try:
            self.engine = create_async_engine(
                parsed, connect_args=arguments, pool_pre_ping=self.dialect != "sqlite", pool_use_lifo=True
            )
        except (ArgumentError, TypeError, ValueError):
            raise DatabaseUrlError("the database URL has an invalid option") from None
        self._threaded: Engine | None = None
        if self.dialect == "postgresql":
            _set_up_postgres(self.engine.sync_engine)
        if self.dialect == "sqlite":
            synchronous = "FULL" if durable else "NORMAL"
            _set_up_sqlite(self.engine.sync_engine, synchronous)
            self._threaded = _threaded(parsed, busy_timeout_s)
            _set_up_sqlite(self._threaded, synchronous)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Open a read transaction. Raises DatabaseUnavailableError."""
        async with self._transaction("BEGIN") as connection:
            yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Open a write transaction. It is committed at the end, or rolled back on an error. Raises
        DatabaseUnavailableError.

        On SQLite, the transaction takes the write lock at the start, so the rows it reads can't change before it
        writes.
        """
        async with AsyncExitStack() as stack:
            if self._writer is not None:
                await stack.enter_async_context(self._writer)
            yield await stack.enter_async_context(self._transaction("BEGIN IMMEDIATE"))

    async def transact(self, work: Callable[[Connection], _Result], *, writes: bool = True) -> _Result:
        """Run ``work`` in a write or read transaction and return its result. Raises DatabaseUnavailableError.

        Use this for frequent work. On SQLite, all statements run in one thread. This costs a fraction of an
        asynchronous connection, which wakes a thread for each statement.
        """
        if self._threaded is None:
            async with self.write() if writes else self.read() as connection:
                return await connection.run_sync(work)
        engine, begin = self._threaded, "BEGIN IMMEDIATE" if writes else "BEGIN"

        def run() -> _Result:
            with _unavailable(Exception):
                connection = engine.connect()
            with connection, _unavailable(*_UNAVAILABLE):
                connection.execution_options(sqlite_begin=begin)
                with connection.begin():
                    return work(connection)

        async with AsyncExitStack() as stack:
            if writes and self._writer is not None:
                await stack.enter_async_context(self._writer)
            return await asyncio.to_thread(run)

    @asynccontextmanager
    async def _transaction(self, begin: str) -> AsyncIterator[AsyncConnection]:
        async with AsyncExitStack() as stack:
            with _unavailable(Exception):  # Drivers raise errors of many types here, including OSError.
                connection = await stack.enter_async_context(self.engine.connect())
            with _unavailable(*_UNAVAILABLE):
                await connection.execution_options(sqlite_begin=begin)
                async with connection.begin():
                    yield connection

    def insert_ignore(self, table: Table) -> Any:
        """Build an INSERT into ``table`` that skips rows whose key already exists."""
        insert = sqlite.insert if self.dialect == "sqlite" else postgresql.insert
        return insert(table).on_conflict_do_nothing()

    def among(self, column: ColumnElement[str], values: Collection[str]) -> ColumnElement[bool]:
        """Build the condition that ``column`` is one of ``values``, which are passed as one parameter. A list of
        parameters takes longer to build, and databases limit its length."""
        if self.dialect == "sqlite":
            listed = func.json_each(json.dumps(list(values))).table_valued("value")
            return column.in_(select(listed.c.value))
        return column == any_(literal(list(values), ARRAY(String)))

    async def ping(self) -> None:
        """Check that the database responds. Raises DatabaseUnavailableError if it doesn't."""
        async with self.read() as connection:
            await connection.execute(text("SELECT 1"))

    async def aclose(self) -> None:
        await self.engine.dispose()
        if self._threaded is not None:
            self._threaded.dispose()

    @asynccontextmanager
    async def migrating(self) -> AsyncIterator[AsyncConnection]:
        """Open a write transaction that only one process at a time can hold."""
        async with self.write() as connection:
            if self.dialect == "postgresql":
                await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            yield connection


def _postgres_connection() -> type:
    """Return the class for connections to PostgreSQL. Closing such a connection doesn't wait forever for an
    unresponsive server. Raises DatabaseUrlError if the driver isn't installed."""
    try:
        import asyncpg  # Imported here, because only PostgreSQL needs it.
    except ModuleNotFoundError:
        raise DatabaseUrlError("PostgreSQL driver not found: install groundlane[postgres]") from None

    class _PostgresConnection(asyncpg.Connection):  # type: ignore[misc]
        async def close(self, *, timeout: float | None = None) -> None:
            with suppress(TimeoutError):  # After a timeout, the driver has already dropped the connection.
                await super().close(timeout=_CLOSE_S if timeout is None else timeout)

    return _PostgresConnection


def _set_up_postgres(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _: Any) -> None:
        # Turn off just-in-time compilation. Compiling a statement can take a second. Without compilation, even the
        # longest statements are faster. Don't use a startup parameter, because PgBouncer rejects unknown ones.
        connection.run_async(lambda driver: driver.execute("SET jit TO off"))


class _SqliteConnection(aiosqlite.Connection):
    """An SQLite connection that stores a future, which completes when the connection's thread ends."""

    stopped: asyncio.Future[Any] | None = None

    def stop(self) -> asyncio.Future[Any] | None:
        self.stopped = super().stop()
        return self.stopped


async def _open_sqlite(path: str, **arguments: Any) -> aiosqlite.Connection:
    connection = _SqliteConnection(lambda: _connect(path, **arguments), iter_chunk_size=64)
    # The thread must not keep the process alive. SQLAlchemy does the same for the connections that it opens itself.
    connection._thread.daemon = True
    try:
        return await connection
    except sqlite3.Error:
        # Wait for the thread to report its end to this loop, because the loop may close right after this.
        if connection.stopped is not None:
            await connection.stopped
        raise


def _threaded(url: URL, busy_timeout_s: float) -> Engine:
    """Create the engine for ``Database.transact``. Only one thread uses a connection at a time, but not always the same
    thread."""
    arguments = {"timeout": busy_timeout_s, "isolation_level": None, "check_same_thread": False}
    path = str(url.database)
    return create_engine(url.set(drivername="sqlite"), creator=lambda: _connect(path, **arguments))


_creating = threading.Lock()


def _connect(path: str, **arguments: Any) -> sqlite3.Connection:
    """Open an SQLite file that only its owner can read or write. SQLite creates ``-wal`` and ``-shm`` with the same
    mode."""
    # Create a missing file, but don't open an existing one. Closing it would release the locks of this process's other
    # connections (https://www.sqlite.org/howtocorrupt.html, section 2.2). While a new file is open here, ``_creating``
    # keeps other threads from connecting to it. Ignore errors: the file exists, or SQLite will report the problem.
    with _creating, suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(OSError):  # The file does not exist or belongs to another user.
            make_private(name)
    connection: sqlite3.Connection = sqlite3.connect(path, **arguments)
    return connection


def make_private(path: str | Path) -> None:
    """Restrict ``path`` so that only its owner can read and write it. Raises OSError."""
    if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
        os.chmod(path, 0o600)


def _set_up_sqlite(engine: Engine, synchronous: str) -> None:
    @event.listens_for(engine, "connect")
    def set_pragmas(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute(f"PRAGMA synchronous = {synchronous}")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("sqlite_begin", "BEGIN"))


_UNAVAILABLE = (OperationalError, InterfaceError, OSError, TimeoutError)


@contextmanager
def _unavailable(*errors: type[Exception]) -> Iterator[None]:
    """Convert ``errors`` to DatabaseUnavailableError."""
    try:
        yield
    except errors as error:
        raise DatabaseUnavailableError(_line(error)) from error


def _line(error: BaseException) -> str:
    """Return the first line of the driver's message. SQLAlchemy's message contains the statement and its parameters."""
    cause = getattr(error, "orig", None) or error
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]
