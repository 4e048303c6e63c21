"""``groundlane keys``: gateway keys, in the database of the settings."""

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.common import show_columns, with_database
from app.settings import load_settings

if TYPE_CHECKING:
    from app.auth import StoredKey
    from app.db.database import Database

keys = typer.Typer(help="Gateway keys: who may call the gateway.", no_args_is_help=True)

_MOST = 10_000


@keys.command()
def create(
    name: Annotated[str, typer.Argument(help="What to call it; several keys may have one name")],
    model: Annotated[
        list[str] | None, typer.Option(help="Glob of a model that it may use; give it again for more")
    ] = None,
    collection: Annotated[
        list[str] | None, typer.Option(help="Glob of a collection that its documents may be of; give it again for more")
    ] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Most requests in a minute")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON")] = False,
) -> None:
    """Make a key and print it: the only time that it can be read."""
    from app.auth import KeyDraft, KeyStore

    draft = KeyDraft(
        name=_line(name),
        models=[_line(glob) for glob in model or []],
        collections=[_line(glob) for glob in collection or []],
        requests_per_minute=requests_per_minute,
    )
    made, key = with_database(load_settings().database_url, lambda database: KeyStore(database).create(draft))
    if json:
        typer.echo(_json(made, key=key))
        return
    typer.echo(f"The key {made.prefix} of {made.name!r}, shown once:", err=True)
    typer.echo(key)


@keys.command("list")
def list_keys(
    prefix: Annotated[str | None, typer.Option(help="How the prefix begins")] = None,
    all: Annotated[bool, typer.Option("--all", help="Revoked ones too")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line")] = False,
) -> None:
    """List the keys by name; of each its prefix, never the key itself."""
    from app.auth import KeyStore

    async def found(database: "Database") -> list["StoredKey"]:
        return list(await KeyStore(database).list(prefix=prefix, revoked=None if all else False, limit=_MOST))

    listed = with_database(load_settings().database_url, found)
    if json:
        for key in listed:
            typer.echo(_json(key))
        return
    heading = ("PREFIX", "NAME", "MODELS", "COLLECTIONS", "PER MINUTE", "CREATED", "REVOKED")
    show_columns([heading, *(_row(key) for key in listed)])


@keys.command()
def revoke(key: Annotated[str, typer.Argument(help="Id or prefix")]) -> None:
    """Revoke a key. Every running gateway refuses it within a second."""
    from app.auth import KeyStore

    revoked = with_database(load_settings().database_url, lambda database: KeyStore(database).revoke(key))
    typer.echo(f"The key {revoked.prefix} of {revoked.name!r} is revoked.")


def _row(key: "StoredKey") -> tuple[str, ...]:
    per_minute = "-" if key.requests_per_minute is None else str(key.requests_per_minute)
    revoked = "-" if key.revoked_at is None else f"{key.revoked_at:%Y-%m-%d}"
    models, collections = (",".join(globs) or "any" for globs in (key.models, key.collections))
    return (key.prefix, key.name, models, collections, per_minute, f"{key.created_at:%Y-%m-%d}", revoked)


def _line(text: str) -> str:
    if not (0 < len(text) <= 200 and text.isprintable()):
        raise typer.BadParameter("expected 1 to 200 printable characters")
    return text


def _json(made: "StoredKey", **more: str) -> str:
    from dataclasses import asdict

    import orjson

    return orjson.dumps(asdict(made) | more, option=orjson.OPT_UTC_Z).decode()
