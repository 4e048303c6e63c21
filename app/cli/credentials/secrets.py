"""``groundlane secrets``: manages the keys that encrypt the secrets in the database."""

import typer

from app.cli.common import with_database
from app.settings import load_settings

secrets = typer.Typer(help="Manage the encryption of secrets, such as upstream API keys.", no_args_is_help=True)


@secrets.command()
def new_key() -> None:
    """Print a new encryption key for GROUNDLANE_SECRET_KEY."""
    from app.auth.secrets import new_secret_key

    typer.echo(new_secret_key())


@secrets.command()
def rotate() -> None:
    """Re-encrypt every secret with the first key in GROUNDLANE_SECRET_KEY. You can then remove the other keys."""
    from app.auth.secrets import Vault

    settings = load_settings()
    count = with_database(settings.database_url, lambda database: Vault(database, settings.secret_key).rotate())
    typer.echo(f"Secrets re-encrypted: {count}.")
