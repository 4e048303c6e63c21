"""The ``groundlane`` command. Whatever goes wrong is one line on stderr and an exit code, never a stack trace."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from app.settings import Settings, SettingsError, load_settings

cli = typer.Typer(
    name="groundlane",
    help="An OpenAI-compatible gateway that keeps RAG answers grounded.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
database = typer.Typer(help="The database.", no_args_is_help=True)
cli.add_typer(database, name="db")

_NOT_GROUNDED = 1


class CommandError(Exception):
    """The command failed; the message is one line."""

    exit_code = 1


class UsageError(CommandError):
    """An argument or a setting is wrong."""

    exit_code = 2


@cli.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on")] = 8080,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes")] = 1,
) -> None:
    """Run the gateway. Brings the database up to date and, at the first start, makes the admin token."""
    from app.serving import prepare
    from app.serving import serve as run

    settings = load_settings()
    with database_errors():
        token = prepare(settings)
    if token is not None:
        show_token(token)
    run(settings, host=host, port=port, workers=workers)


@cli.command()
def demo(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the gateway; 0: any free one")] = 8080,
    keep: Annotated[bool, typer.Option("--keep", help="Keep database and requests in ./groundlane-demo")] = False,
    exit: Annotated[bool, typer.Option("--exit", help="End after the walk-through")] = False,
) -> None:
    """Show what the gateway does, with a scripted model: no account and no network needed. Then keep serving."""
    from app.demo.tour import TourError, tour

    try:
        with database_errors():
            tour(load_settings(), port=port, folder=Path("groundlane-demo") if keep else None, leave=exit)
    except TourError as error:
        raise CommandError(str(error)) from None


@cli.command()
def check(
    text: Annotated[Path, typer.Argument(help="File with the text; -: stdin")],
    sources: Annotated[list[Path], typer.Argument(help="Text files to check it against")],
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON")] = False,
) -> None:
    """Check a text against source files, without a server. Exit code 1: it is not grounded in them."""
    from app.checking import JudgeMissingError, check_text, is_grounded, report_json, show_report
    from app.screen import Screen

    try:
        report = check_text(load_settings(), _read(text), {str(source): _read(source) for source in sources})
    except JudgeMissingError as error:
        raise SettingsError(f"GROUNDLANE_JUDGE: {error}") from None
    if json:
        typer.echo(report_json(report))
    else:
        show_report(report, Screen())
    raise typer.Exit(0 if is_grounded(report) else _NOT_GROUNDED)


@cli.command()
def settings() -> None:
    """List every setting with its value (secrets masked), its default and its meaning."""
    rows = [("SETTING", "VALUE", "DEFAULT", "MEANING"), *setting_rows(load_settings())]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        typer.echo("  ".join([*padded, row[3]]))


@database.command()
def upgrade() -> None:
    """Bring the tables to this version, or make them. Safe to run again."""
    from app.db import upgrade as run

    with database_errors():
        run(load_settings().database_url)
    typer.echo("The database is up to date.")


def setting_rows(values: Settings) -> list[tuple[str, str, str, str]]:
    """Each setting as (variable, value, default, meaning); secrets are masked."""
    from app.telemetry.logs import mask

    def shown(value: object) -> str:
        return "-" if value is None else mask(str(value))

    return [
        (
            f"GROUNDLANE_{name.upper()}",
            shown(getattr(values, name)),
            shown(field.default),
            field.description or "",
        )
        for name, field in Settings.model_fields.items()
    ]


@contextmanager
def database_errors() -> Iterator[None]:
    """Turn what is wrong with the database into one line that names its setting."""
    from app.db import DatabaseUnavailableError, DatabaseUrlError, SchemaError

    try:
        yield
    except DatabaseUrlError as error:
        raise SettingsError(f"GROUNDLANE_DATABASE_URL: {error}") from None
    except (DatabaseUnavailableError, SchemaError) as error:
        raise CommandError(f"GROUNDLANE_DATABASE_URL: {error}") from None


def show_token(token: str) -> None:
    """Print a new admin token: the only time that it can be read."""
    typer.echo(f"Admin token (shown once, keep it): {token}", err=True)


def _read(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a UTF-8 text file") from None


def main() -> None:
    """Entry point of the console script. Exit codes: 1 it failed, 2 a setting or an argument is wrong."""
    try:
        cli()
    except SettingsError as error:
        _fail(UsageError(str(error)))
    except CommandError as error:
        _fail(error)


def _fail(error: CommandError) -> NoReturn:
    typer.echo(f"Error: {error}", err=True)
    sys.exit(error.exit_code)
