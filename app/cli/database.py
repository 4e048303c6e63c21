"""``groundlane db``: upgrades the tables and deletes old requests."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from app.cli.common import UsageError, database_errors, with_database
from app.settings import load_settings

database = typer.Typer(help="Manage the database.", no_args_is_help=True)

_AGE = re.compile(r"([1-9][0-9]{0,5})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


@database.command()
def upgrade() -> None:
    """Create the tables, or upgrade them to this version. It is safe to run this more than once."""
    from app.db.schema import upgrade as run

    with database_errors():
        run(load_settings().database_url)
    typer.echo("The database is up to date.")


@database.command()
def prune(
    older_than: Annotated[str, typer.Option(help="Age in hours, days or weeks: 12h, 90d, 8w")],
    keep_marked: Annotated[bool, typer.Option("--keep-marked", help="Keep requests that have feedback")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the requests and runs")] = False,
) -> None:
    """Delete requests and runs older than a given age. Deletes in small batches, so it is safe while a gateway is
    running."""
    from app.events.storage.retention import prune as run

    before = datetime.now(UTC) - _age(older_than)
    url = load_settings().database_url
    gone = with_database(url, lambda database: run(database, before, keep_marked=keep_marked, dry_run=dry_run))
    found = f"{gone.requests} requests and {gone.runs} runs older than {before:%Y-%m-%d %H:%M} UTC"
    typer.echo(f"Would delete {found}." if dry_run else f"Deleted {found}.")


def _age(text: str) -> timedelta:
    found = _AGE.fullmatch(text)
    if found is None:
        raise UsageError(f"--older-than: {text!r} is not an age; use a format such as 90d, 12h or 8w")
    try:
        age = timedelta(hours=int(found.group(1)) * _HOURS[found.group(2)])
        datetime.now(UTC) - age
    except OverflowError:
        raise UsageError(f"--older-than: {text!r} is too large") from None
    return age
