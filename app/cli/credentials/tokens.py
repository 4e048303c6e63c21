"""``groundlane tokens``: manages admin tokens in the database named in the settings."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.common import checked_line, dataclass_json, show_columns, with_database
from app.settings import load_settings

if TYPE_CHECKING:
    from app.db.database import Database
    from app.identity import StoredToken

tokens = typer.Typer(
    help="Manage admin tokens, which give access to the admin API and the dashboard.", no_args_is_help=True
)

_MOST = 10_000


@tokens.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the person or program that uses the token")],
    role: Annotated[str, typer.Option(help="viewer, editor or admin")] = "viewer",
    expires_in_days: Annotated[
        int | None, typer.Option(min=1, max=3_650, help="Days until the token expires; by default, it never expires")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the token and its properties as JSON")] = False,
) -> None:
    """Create an admin token and print it. It is shown only once."""
    from app.identity import AdminTokens, Role, TokenDraft

    if role not in list(Role):
        raise typer.BadParameter(f"expected {', '.join(Role)}", param_hint="--role")
    expires_at = None if expires_in_days is None else datetime.now(UTC) + timedelta(days=expires_in_days)
    draft = TokenDraft(name=checked_line(name), role=Role(role), expires_at=expires_at)
    made = with_database(load_settings().database_url, lambda database: AdminTokens(database).create(draft))
    if json:
        typer.echo(dataclass_json(made))
        return
    typer.echo(f"Token {made.prefix} ({made.name!r}, {made.role}), shown only once:", err=True)
    typer.echo(made.token)


@tokens.command("list")
def list_tokens(
    all: Annotated[bool, typer.Option("--all", help="Include revoked tokens")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line")] = False,
) -> None:
    """List the admin tokens, sorted by name. Only the prefix of each token is shown."""
    from app.identity import AdminTokens

    async def found(database: "Database") -> list["StoredToken"]:
        return list(await AdminTokens(database).list(revoked=None if all else False, limit=_MOST))

    listed = with_database(load_settings().database_url, found)
    if json:
        for token in listed:
            typer.echo(dataclass_json(token))
        return
    show_columns([("PREFIX", "NAME", "ROLE", "LAST USED", "EXPIRES", "CREATED", "REVOKED"), *map(_row, listed)])


@tokens.command()
def revoke(token: Annotated[str, typer.Argument(help="ID or prefix of the token")]) -> None:
    """Revoke an admin token. Running gateways reject the token immediately, and its sessions end."""
    from app.identity import AdminTokens

    revoked = with_database(load_settings().database_url, lambda database: AdminTokens(database).revoke(token))
    typer.echo(f"Token {revoked.prefix} ({revoked.name!r}) is revoked.")


def _row(token: "StoredToken") -> tuple[str, ...]:
    times = (token.last_used_at, token.expires_at, token.created_at, token.revoked_at)
    return (token.prefix, token.name, token.role, *("-" if time is None else f"{time:%Y-%m-%d}" for time in times))
