"""Helpers shared by the commands: errors, database access, and tables."""

import getpass
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import typer

from app.settings import SettingsError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from app.db.database import Database

T = TypeVar("T")


class CommandError(Exception):
    """A command failed. The message is one line."""

    exit_code = 1


class UsageError(CommandError):
    """An argument or a setting is invalid."""

    exit_code = 2


@contextmanager
def database_errors() -> Iterator[None]:
    """Convert database errors to one-line errors that name the setting."""
    from app.db.database import DatabaseUnavailableError, DatabaseUrlError
    from app.db.schema import SchemaError

    try:
        yield
    except DatabaseUrlError as error:
        raise SettingsError(f"GROUNDLANE_DATABASE_URL: {error}") from None
    except (DatabaseUnavailableError, SchemaError) as error:
        raise CommandError(f"GROUNDLANE_DATABASE_URL: {error}") from None


def with_database(url: str, work: Callable[["Database"], Awaitable[T]]) -> T:
    """Run ``work`` on the database at ``url`` and return its result. The audit log records the user who runs the
    command.

    Raises SettingsError or CommandError.
    """
    import asyncio

    from app.auth.audit_log import acting_as
    from app.db.database import Database
    from app.db.schema import check_schema
    from app.errors import AdminError

    async def run() -> T:
        database = Database(url)
        try:
            await check_schema(database)
            with acting_as(f"cli:{_user()}"):
                return await work(database)
        finally:
            await database.aclose()

    with database_errors():
        try:
            return asyncio.run(run())
        except AdminError as error:
            raise CommandError(error.message) from None


def show_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print ``rows`` in columns. The first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        typer.echo("  ".join(cells).rstrip())


def checked_line(text: str) -> str:
    """Return ``text``. Raises typer.BadParameter unless it is one line of at most 200 printable characters."""
    if not (0 < len(text) <= 200 and text.isprintable()):
        raise typer.BadParameter("expected 1 to 200 printable characters")
    return text


def dataclass_json(value: "DataclassInstance", **more: str) -> str:
    """Return the fields of a dataclass, and ``more``, as JSON on one line."""
    from dataclasses import asdict

    import orjson

    return orjson.dumps(asdict(value) | more, option=orjson.OPT_UTC_Z).decode()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # The user id has no name, which is common in containers.
        return str(os.getuid())
