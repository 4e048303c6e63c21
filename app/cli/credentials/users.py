"""``groundlane users``: lists the people who have signed in with a provider, and assigns roles to them."""

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.common import dataclass_json, show_columns, with_database
from app.settings import load_settings

if TYPE_CHECKING:
    from app.db.database import Database
    from app.identity import StoredUser

users = typer.Typer(help="Manage the people who sign in with a provider.", no_args_is_help=True)

_ROLES = ("viewer", "editor", "admin", "none", "claimed")


@users.command("list")
def list_users(json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line")] = False) -> None:
    """List the users who have signed in, sorted by name."""
    from app.identity import Users

    async def found(database: "Database") -> list["StoredUser"]:
        return list(await Users(database).list())

    listed = with_database(load_settings().database_url, found)
    if json:
        for user in listed:
            typer.echo(dataclass_json(user))
        return
    show_columns([("ID", "NAME", "CLAIMED ROLE", "ASSIGNED ROLE", "SIGNED IN"), *map(_row, listed)])


@users.command()
def assign(
    user: Annotated[str, typer.Argument(help="ID of the user")],
    role: Annotated[
        str, typer.Argument(help="viewer, editor, admin or none; or claimed, to restore the role from the provider")
    ],
) -> None:
    """Assign a role to a user. It overrides the role from the provider's claims and takes effect immediately."""
    from typing import cast

    from app.identity import Assigned, Users

    if role not in _ROLES:
        raise typer.BadParameter(f"expected {', '.join(_ROLES)}", param_hint="ROLE")
    assigned = None if role == "claimed" else cast(Assigned, role)
    changed = with_database(load_settings().database_url, lambda database: Users(database).assign(user, assigned))
    holds = "no role" if changed.principal is None else f"the role {changed.principal.role}"
    typer.echo(f"User {changed.id} ({changed.name!r}) has {holds}.")


def _row(user: "StoredUser") -> tuple[str, ...]:
    return (user.id, user.name, user.claimed_role or "-", user.assigned_role or "-", f"{user.signed_in_at:%Y-%m-%d}")
