"""Runs the migrations through ``app.db.database``, in one transaction that excludes other processes."""

import asyncio
from typing import Any

from alembic import context
from sqlalchemy import Connection, make_url

from app.db.database import Database
from app.db.schema import autogenerate_options
from app.db.tables import metadata
from app.settings import load_settings


def _configure(dialect: str, **target: Any) -> None:
    context.configure(
        target_metadata=metadata,
        # SQLite can roll back DDL too, unless the driver manages transactions.
        transactional_ddl=True,
        # SQLite cannot alter most things in place; batch mode copies the table.
        render_as_batch=True,
        **autogenerate_options(dialect),
        **target,
    )


def _migrate(connection: Connection) -> None:
    _configure(connection.dialect.name, connection=connection)
    with context.begin_transaction():
        context.run_migrations()


async def _online(url: str) -> None:
    # Copying a large event log takes a long time.
    database = Database(url, command_timeout_s=None)
    try:
        async with database.migrating() as connection:
            await connection.run_sync(_migrate)
    finally:
        await database.aclose()


def _offline(url: str) -> None:
    _configure(make_url(url).get_backend_name(), url=url, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


_url = context.config.attributes.get("url") or load_settings().database_url
if context.is_offline_mode():
    _offline(_url)
else:
    asyncio.run(_online(_url))
