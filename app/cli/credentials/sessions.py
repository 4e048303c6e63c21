"""``groundlane sessions``: lists and ends open dashboard sessions."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from app.cli.common import dataclass_json, show_columns, with_database
from app.settings import load_settings

if TYPE_CHECKING:
    from app.db.database import Database
    from app.identity import Sessions, StoredSession

sessions = typer.Typer(help="Manage open dashboard sessions.", no_args_is_help=True)

T = TypeVar("T")


@sessions.command("list")
def list_sessions(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line")] = False,
) -> None:
    """List everyone's open sessions. The most recently used session comes first."""

    async def found(sessions: "Sessions") -> list["StoredSession"]:
        return list(await sessions.list())

    listed = _with_sessions(found)
    if json:
        for session in listed:
            typer.echo(dataclass_json(session))
        return
    show_columns([("ID", "ACTOR", "ROLE", "ADDRESS", "LAST USED", "SIGNED IN"), *map(_row, listed)])


@sessions.command()
def end(session: Annotated[str, typer.Argument(help="ID of the session")]) -> None:
    """End a session. Every running gateway rejects it immediately."""
    _with_sessions(lambda sessions: sessions.end(session))
    typer.echo(f"Session {session} has ended.")


def _with_sessions(work: Callable[["Sessions"], Awaitable[T]]) -> T:
    from datetime import timedelta

    from app.auth.admin_token import AdminAuth
    from app.identity import Sessions

    settings = load_settings()
    idle, lifetime = (timedelta(seconds=each) for each in (settings.session_idle_s, settings.session_lifetime_s))

    async def run(database: "Database") -> T:
        admin = await AdminAuth.open(database, settings.admin_token)
        if admin.created is not None:  # The database is new, so opening it has just created the token.
            from app.cli.main import show_token

            show_token(admin.created)
        return await work(Sessions(database, admin, idle=idle, lifetime=lifetime))

    return with_database(settings.database_url, run)


def _row(session: "StoredSession") -> tuple[str, ...]:
    times = (f"{time:%Y-%m-%d %H:%M}" for time in (session.seen_at, session.created_at))
    return (session.id, session.actor, session.role, session.address or "-", *times)
