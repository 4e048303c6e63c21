"""The database: one engine, read and write transactions, migrations. SQLite and PostgreSQL behave alike above it."""

import asyncio
import re
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, make_url, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from app.db.rollup_tables import STATISTICS, metadata
from app.db.tables import EVENT_TABLES, ONE_DIALECT

__all__ = [
    "Database",
    "DatabaseUnavailableError",
    "DatabaseUrlError",
    "SchemaError",
    "check_schema",
    "compared",
    "metadata",
    "upgrade",
]

_MIGRATION_LOCK = 0x67726F756E64  # any number, as long as every worker takes the same
_PARTITION = re.compile(
    rf"({'|'.join(table.name for table in EVENT_TABLES)})_(default|\d+_\d\d)"
    rf"|({'|'.join(table.name for table in STATISTICS)})_(hours|days)(_all|_each)?"
)
_Result = TypeVar("_Result")
_UPGRADING = threading.Lock()  # Alembic keeps its context in module globals


class DatabaseUrlError(ValueError):
    """The database URL cannot be used; the message is one line."""


class DatabaseUnavailableError(Exception):
    """The database cannot be reached, is locked, or cannot be written to. Trying again later may help."""


class SchemaError(Exception):
    """The tables are not those of this version; the message is one line that says what to do."""


class Database:
    """Connections to one database.

    ``url``: ``sqlite+aiosqlite:///file`` or ``postgresql+asyncpg://…``. ``durable``: a commit survives a loss of power
    (on SQLite; PostgreSQL is set up by its owner). ``busy_timeout_s``: how long to wait for a locked or silent one.
    ``command_timeout_s``: how long a statement may take on PostgreSQL; None: as long as it does. Raises
    DatabaseUrlError.
    """

    def __init__(
        self, url: str, *, durable: bool = False, busy_timeout_s: float = 5.0, command_timeout_s: float | None = 60.0
    ) -> None:
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):
            raise DatabaseUrlError("the database URL cannot be read") from None
        self.dialect = parsed.get_backend_name()
        self.path: Path | None = None
        # SQLite takes one writer at a time. Waiting here is fair and costs nothing; in SQLite it would be a busy loop.
        self._writer: asyncio.Lock | None = None
        arguments: dict[str, Any]
        match parsed.drivername:
            case "sqlite+aiosqlite":
                if parsed.database in (None, "", ":memory:") or "uri" in parsed.query:
                    raise DatabaseUrlError("an SQLite database needs a file: sqlite+aiosqlite:///groundlane.db")
                self.path = Path(str(parsed.database)).absolute()
                self._writer = asyncio.Lock()
                # Without an isolation level the driver starts no transactions of its own; the listener below does.
                arguments = {
                    "timeout": busy_timeout_s,
                    "isolation_level": None,
                    "async_creator_fn": _open_sqlite,
                }
            case "postgresql+asyncpg":
                arguments = {"timeout": busy_timeout_s, "command_timeout": command_timeout_s}
            case driver:
                raise DatabaseUrlError(f"{driver!r} is no known database: use sqlite+aiosqlite or postgresql+asyncpg")
        try:
            self.engine = create_async_engine(parsed, connect_args=arguments, pool_pre_ping=self.dialect != "sqlite")
        except ModuleNotFoundError:
            raise DatabaseUrlError("PostgreSQL needs its driver: install groundlane[postgres]") from None
        except (ArgumentError, TypeError, ValueError):
            raise DatabaseUrlError("the database URL has an option that cannot be read") from None
        self._threaded: Engine | None = None
        if self.dialect == "sqlite":
            synchronous = "FULL" if durable else "NORMAL"
            _set_up_sqlite(self.engine.sync_engine, synchronous)
            self._threaded = _threaded(parsed, busy_timeout_s)
            _set_up_sqlite(self._threaded, synchronous)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads. Raises DatabaseUnavailableError."""
        async with self._transaction("BEGIN") as connection:
            yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that writes: committed at the end, rolled back on an error. Raises DatabaseUnavailableError.

        On SQLite it holds the write lock from its start, so that what it reads is still true when it writes.
        """
        async with AsyncExitStack() as stack:
            if self._writer is not None:
                await stack.enter_async_context(self._writer)
            yield await stack.enter_async_context(self._transaction("BEGIN IMMEDIATE"))

    async def transact(self, work: Callable[[Connection], _Result], *, writes: bool = True) -> _Result:
        """``work`` in one transaction, as ``write`` or ``read`` makes it; its result. Raises DatabaseUnavailableError.

        For what is done over and over. On SQLite it costs a fraction of the same through an asynchronous connection,
        which wakes a thread for every statement; here one does it all.
        """
        if self._threaded is None:
            async with self.write() if writes else self.read() as connection:
                return await connection.run_sync(work)
        engine, begin = self._threaded, "BEGIN IMMEDIATE" if writes else "BEGIN"

        def run() -> _Result:
            with _unavailable(Exception):
                connection = engine.connect()
            with connection, _unavailable(*_AWAY):
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
            with _unavailable(Exception):  # drivers raise what they like here, from OSError to types of their own
                connection = await stack.enter_async_context(self.engine.connect())
            with _unavailable(*_AWAY):
                await connection.execution_options(sqlite_begin=begin)
                async with connection.begin():
                    yield connection

    def insert_ignore(self, table: Table) -> Any:
        """An INSERT into ``table`` that leaves out rows whose key is there already."""
        insert = sqlite.insert if self.dialect == "sqlite" else postgresql.insert
        return insert(table).on_conflict_do_nothing()

    async def ping(self) -> None:
        """Raises DatabaseUnavailableError unless the database answers."""
        async with self.read() as connection:
            await connection.execute(text("SELECT 1"))

    async def aclose(self) -> None:
        await self.engine.dispose()
        if self._threaded is not None:
            self._threaded.dispose()

    @asynccontextmanager
    async def migrating(self) -> AsyncIterator[AsyncConnection]:
        """A write transaction that only one process at a time can have."""
        async with self.write() as connection:
            if self.dialect == "postgresql":
                await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            yield connection


class _SqliteConnection(aiosqlite.Connection):
    """Remembers when its thread has stopped."""

    stopped: asyncio.Future[Any] | None = None

    def stop(self) -> asyncio.Future[Any] | None:
        self.stopped = super().stop()
        return self.stopped


async def _open_sqlite(path: str, **arguments: Any) -> aiosqlite.Connection:
    connection = _SqliteConnection(lambda: sqlite3.connect(path, **arguments), iter_chunk_size=64)
    # What SQLAlchemy does to those it opens itself: a thread must not keep the process from ending.
    connection._thread.daemon = True
    try:
        return await connection
    except sqlite3.Error:
        # The thread still has to report its end to this loop, which may be closed a moment later.
        if connection.stopped is not None:
            await connection.stopped
        raise


def _threaded(url: URL, busy_timeout_s: float) -> Engine:
    """For ``Database.transact``; a connection is used by one thread at a time, but not always by the same one."""
    arguments = {"timeout": busy_timeout_s, "isolation_level": None, "check_same_thread": False}
    return create_engine(url.set(drivername="sqlite"), connect_args=arguments)


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


_AWAY = (OperationalError, InterfaceError, OSError, TimeoutError)


@contextmanager
def _unavailable(*errors: type[Exception]) -> Iterator[None]:
    """Where one of ``errors`` is raised, so is DatabaseUnavailableError."""
    try:
        yield
    except errors as error:
        raise DatabaseUnavailableError(_line(error)) from error


def _line(error: BaseException) -> str:
    """The first line of the driver's own message; SQLAlchemy's carries the statement and its parameters."""
    cause = getattr(error, "orig", None) or error
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]


def _alembic(url: str) -> Config:
    # Found through the package, not the working directory, so that it works from a wheel.
    spec = find_spec("migrations")
    if spec is None or spec.origin is None:
        raise SchemaError("the package 'migrations' is not installed")
    config = Config()
    config.set_main_option("script_location", str(Path(spec.origin).parent).replace("%", "%%"))
    config.attributes["url"] = url
    return config


def upgrade(url: str) -> None:
    """Bring the tables at ``url`` to this version, or make them. Does nothing where they are. Several may run at once.

    Runs an event loop of its own: from a coroutine, call it in a thread. Raises DatabaseUrlError,
    DatabaseUnavailableError, or SchemaError where a later version has made the tables.
    """
    with _UPGRADING:
        try:
            command.upgrade(_alembic(url), "head")
        except CommandError as error:
            raise SchemaError(f"the tables were made by a later version than this one ({error})") from None


def compared(dialect: str) -> dict[str, Any]:
    """Options for Alembic where it compares a database with ``metadata``: partitions are parts of their table, and what
    only another dialect has is not missing."""
    return {
        "include_name": lambda name, kind, _parents: kind != "table" or _PARTITION.fullmatch(name or "") is None,
        "include_object": lambda thing, *_: getattr(thing, "info", {}).get(ONE_DIALECT, dialect) == dialect,
    }


async def check_schema(database: Database) -> None:
    """Raises SchemaError unless the tables are those of this version, or DatabaseUnavailableError."""
    head = ScriptDirectory.from_config(_alembic("")).get_current_head()
    async with database.read() as connection:
        found = await connection.run_sync(lambda sync: MigrationContext.configure(sync).get_current_revision())
    if found != head:
        raise SchemaError(
            f"the database is at schema {found or 'none'}, this version needs {head}: run `groundlane db upgrade`"
        )
