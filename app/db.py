"""The database: one engine, read and write transactions, migrations. SQLite and PostgreSQL behave alike above it."""

import asyncio
import re
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiosqlite
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Table, event, make_url, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.tables import EVENT_TABLES, ONE_DIALECT, metadata

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
_PARTITION = re.compile(rf"({'|'.join(table.name for table in EVENT_TABLES)})_(default|\d+_\d\d)")
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
        if self.dialect == "sqlite":
            _set_up_sqlite(self.engine, "FULL" if durable else "NORMAL")

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

    @asynccontextmanager
    async def _transaction(self, begin: str) -> AsyncIterator[AsyncConnection]:
        async with AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(self.engine.connect())
            except Exception as error:  # drivers raise what they like here, from OSError to types of their own
                raise DatabaseUnavailableError(_line(error)) from error
            try:
                await connection.execution_options(sqlite_begin=begin)
                async with connection.begin():
                    yield connection
            except (OperationalError, InterfaceError, OSError, TimeoutError) as error:
                raise DatabaseUnavailableError(_line(error)) from error

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


def _set_up_sqlite(engine: AsyncEngine, synchronous: str) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def set_pragmas(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute(f"PRAGMA synchronous = {synchronous}")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("sqlite_begin", "BEGIN"))


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

    Runs an event loop of its own: from a coroutine, call it in a thread. Raises DatabaseUrlError or
    DatabaseUnavailableError.
    """
    with _UPGRADING:
        command.upgrade(_alembic(url), "head")


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
