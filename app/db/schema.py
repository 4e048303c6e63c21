"""Upgrades the schema with the Alembic migrations, and checks at startup that it is up to date."""

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

from app.db import access_tables as access_tables
from app.db import alert_tables as alert_tables
from app.db.database import Database
from app.db.rollup_tables import STATISTICS
from app.db.search_index import PARTITIONED, request_search
from app.db.tables import ONE_DIALECT

_PARTITION = re.compile(
    rf"({'|'.join(table.name for table in PARTITIONED)})_(default|\d+_\d\d)"
    rf"|({'|'.join(table.name for table in STATISTICS)})_(hours|days)(_all|_each)?"
)
_FTS5 = re.compile(rf"{request_search.name}(_\w+)?")
_UPGRADING = threading.Lock()  # Alembic keeps its context in module globals.


class SchemaError(Exception):
    """The schema does not match this version. The message is one line that says what to do."""


def alembic_config(url: str) -> Config:
    """Build Alembic's configuration for the database at ``url``. Raises SchemaError."""
    # Find the migrations through their package, not the working directory, so that this also works from a wheel.
    spec = find_spec("migrations")
    if spec is None or spec.origin is None:
        raise SchemaError("the package 'migrations' is not installed")
    config = Config()
    config.set_main_option("script_location", str(Path(spec.origin).parent).replace("%", "%%"))
    config.attributes["url"] = url
    return config


def upgrade(url: str) -> None:
    """Create the tables at ``url``, or upgrade them to this version. Several processes may do this at the same time.

    This function runs its own event loop, so a coroutine must call it in a thread. Raises DatabaseUrlError,
    DatabaseUnavailableError, or SchemaError if a later version created the tables.
    """
    with _UPGRADING:
        try:
            command.upgrade(alembic_config(url), "head")
        except CommandError as error:
            raise SchemaError(f"the tables were created by a later version ({error})") from None


def autogenerate_options(dialect: str) -> dict[str, Any]:
    """Return the options for Alembic's comparison of a database with the tables. Partitions count as part of their
    table. FTS5 tables are ignored, because only the migrations define them. Objects that exist only in another dialect
    don't count as missing."""
    parts = _FTS5 if dialect == "sqlite" else _PARTITION
    return {
        "include_name": lambda name, kind, _parents: kind != "table" or parts.fullmatch(name or "") is None,
        "include_object": lambda thing, *_: getattr(thing, "info", {}).get(ONE_DIALECT, dialect) == dialect,
    }


async def check_schema(database: Database) -> None:
    """Check that the schema matches this version. Raises SchemaError if it doesn't, or DatabaseUnavailableError."""
    head = ScriptDirectory.from_config(alembic_config("")).get_current_head()
    async with database.read() as connection:
        found = await connection.run_sync(lambda sync: MigrationContext.configure(sync).get_current_revision())
    if found != head:
        raise SchemaError(
            f"the database has schema {found or 'none'}, but this version needs {head}: run `groundlane db upgrade`"
        )
