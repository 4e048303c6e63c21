"""``groundlane secrets``: the keys that the secrets in the database are encrypted with."""

import typer

from app.cli.common import with_database
from app.settings import load_settings

secrets = typer.Typer(help="Secrets in the database, such as the keys of upstreams.", no_args_is_help=True)


@secrets.command()
def new_key() -> None:
    """Print a new key for GROUNDLANE_SECRET_KEY."""
    from app.auth.secrets import new_secret_key

    typer.echo(new_secret_key())


@secrets.command()
def rotate() -> None:
    """Encrypt every secret anew with the first key of GROUNDLANE_SECRET_KEY, so that the others can go."""
    from app.auth.secrets import Vault

    settings = load_settings()
    count = with_database(settings.database_url, lambda database: Vault(database, settings.secret_key).rotate())
    typer.echo(f"Encrypted anew: {count}.")
