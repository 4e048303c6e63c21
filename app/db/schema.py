"""Is the schema up to date? Upgrading it, and checking it at startup, with the Alembic migrations."""

import re
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError

from app.db.database import Database
from app.db.rollup_tables import STATISTICS
from app.db.tables import EVENT_TABLES, ONE_DIALECT

_PARTITION = re.compile(
    rf"({'|'.join(table.name for table in EVENT_TABLES)})_(default|\d+_\d\d)"
    rf"|({'|'.join(table.name for table in STATISTICS)})_(hours|days)(_all|_each)?"
)
_UPGRADING = threading.Lock()  # Alembic keeps its context in module globals


class SchemaError(Exception):
    """The schema is not that of this version. The message is one line that says what to do."""


def alembic_config(url: str) -> Config:
    """Alembic's configuration for the database at ``url``. Raises SchemaError."""
    # Located through the package rather than the working directory, so that it works from a wheel.
    spec = find_spec("migrations")
    if spec is None or spec.origin is None:
        raise SchemaError("the package 'migrations' is not installed")
    config = Config()
    config.set_main_option("script_location", str(Path(spec.origin).parent).replace("%", "%%"))
    config.attributes["url"] = url
    return config


def upgrade(url: str) -> None:
    """Create the tables at ``url``, or upgrade them to this version. Processes may run it concurrently.

    Runs its own event loop: from a coroutine, call it in a thread. Raises DatabaseUrlError, DatabaseUnavailableError,
    or SchemaError if a later version created the tables.
    """
    with _UPGRADING:
        try:
            command.upgrade(alembic_config(url), "head")
        except CommandError as error:
            raise SchemaError(f"the tables were created by a later version ({error})") from None


def autogenerate_options(dialect: str) -> dict[str, Any]:
    """Options for Alembic's comparison of a database with the tables: partitions are part of their table, and objects
    of another dialect are not missing."""
    return {
        "include_name": lambda name, kind, _parents: kind != "table" or _PARTITION.fullmatch(name or "") is None,
        "include_object": lambda thing, *_: getattr(thing, "info", {}).get(ONE_DIALECT, dialect) == dialect,
    }


async def check_schema(database: Database) -> None:
    """Raises SchemaError if the schema is not that of this version, or DatabaseUnavailableError."""
    head = ScriptDirectory.from_config(alembic_config("")).get_current_head()
    async with database.read() as connection:
        found = await connection.run_sync(lambda sync: MigrationContext.configure(sync).get_current_revision())
    if found != head:
        raise SchemaError(
            f"the database is at schema {found or 'none'}, this version needs {head}: run `groundlane db upgrade`"
        )
