"""``groundlane db``: the tables, and how long the event log is kept."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from app.cli.common import UsageError, database_errors, with_database
from app.settings import load_settings

database = typer.Typer(help="The database.", no_args_is_help=True)

_AGE = re.compile(r"([1-9][0-9]{0,5})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


@database.command()
def upgrade() -> None:
    """Bring the tables to this version, or make them. Safe to run again."""
    from app.db.schema import upgrade as run

    with database_errors():
        run(load_settings().database_url)
    typer.echo("The database is up to date.")


@database.command()
def prune(
    older_than: Annotated[str, typer.Option(help="Age, such as 90d, 12h or 8w")],
    keep_marked: Annotated[bool, typer.Option("--keep-marked", help="Keep requests that have feedback")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count")] = False,
) -> None:
    """Delete requests of that age with all that hangs on them, and runs. Takes small pieces; safe beside a gateway."""
    from app.events.storage.retention import prune as run

    before = datetime.now(UTC) - _age(older_than)
    url = load_settings().database_url
    gone = with_database(url, lambda database: run(database, before, keep_marked=keep_marked, dry_run=dry_run))
    told = "would be deleted" if dry_run else "deleted"
    typer.echo(f"From before {before:%Y-%m-%d %H:%M} UTC {told}: {gone.requests} requests, {gone.runs} runs.")


def _age(text: str) -> timedelta:
    found = _AGE.fullmatch(text)
    if found is None:
        raise UsageError(f"--older-than: {text!r} is no age; write it as 90d, 12h or 8w")
    try:
        age = timedelta(hours=int(found.group(1)) * _HOURS[found.group(2)])
        datetime.now(UTC) - age
    except OverflowError:
        raise UsageError(f"--older-than: {text!r} reaches back beyond the calendar") from None
    return age
