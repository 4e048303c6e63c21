"""``groundlane keys``: manages gateway keys in the database named in the settings."""

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.common import checked_line, dataclass_json, show_columns, with_database
from app.settings import load_settings

if TYPE_CHECKING:
    from app.auth import StoredKey
    from app.db.database import Database

keys = typer.Typer(help="Manage gateway keys, which clients send to the gateway.", no_args_is_help=True)

_MOST = 10_000


@keys.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the key; it doesn't have to be unique")],
    model: Annotated[list[str] | None, typer.Option(help="Glob of allowed models; can be repeated")] = None,
    collection: Annotated[
        list[str] | None, typer.Option(help="Glob of allowed document collections; can be repeated")
    ] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Maximum requests per minute")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the key and its properties as JSON")] = False,
) -> None:
    """Create a key and print it. It is shown only once."""
    from app.auth import KeyDraft, KeyStore

    draft = KeyDraft(
        name=checked_line(name),
        models=[checked_line(glob) for glob in model or []],
        collections=[checked_line(glob) for glob in collection or []],
        requests_per_minute=requests_per_minute,
    )
    made, key = with_database(load_settings().database_url, lambda database: KeyStore(database).create(draft))
    if json:
        typer.echo(dataclass_json(made, key=key))
        return
    typer.echo(f"Key {made.prefix} ({made.name!r}), shown only once:", err=True)
    typer.echo(key)


@keys.command("list")
def list_keys(
    prefix: Annotated[str | None, typer.Option(help="List only keys whose prefix begins with this")] = None,
    all: Annotated[bool, typer.Option("--all", help="Include revoked keys")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line")] = False,
) -> None:
    """List the keys, sorted by name. Only the prefix of each key is shown."""
    from app.auth import KeyStore

    async def found(database: "Database") -> list["StoredKey"]:
        return list(await KeyStore(database).list(prefix=prefix, revoked=None if all else False, limit=_MOST))

    listed = with_database(load_settings().database_url, found)
    if json:
        for key in listed:
            typer.echo(dataclass_json(key))
        return
    heading = ("PREFIX", "NAME", "MODELS", "COLLECTIONS", "PER MINUTE", "CREATED", "REVOKED")
    show_columns([heading, *(_row(key) for key in listed)])


@keys.command()
def revoke(key: Annotated[str, typer.Argument(help="ID or prefix of the key")]) -> None:
    """Revoke a key. Running gateways reject the key within a second."""
    from app.auth import KeyStore

    revoked = with_database(load_settings().database_url, lambda database: KeyStore(database).revoke(key))
    typer.echo(f"Key {revoked.prefix} ({revoked.name!r}) is revoked.")


def _row(key: "StoredKey") -> tuple[str, ...]:
    per_minute = "-" if key.requests_per_minute is None else str(key.requests_per_minute)
    revoked = "-" if key.revoked_at is None else f"{key.revoked_at:%Y-%m-%d}"
    models, collections = (",".join(globs) or "any" for globs in (key.models, key.collections))
    return (key.prefix, key.name, models, collections, per_minute, f"{key.created_at:%Y-%m-%d}", revoked)
