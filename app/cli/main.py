"""The ``groundlane`` command. Errors are reported as one line on stderr and an exit code, never as a stack trace."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from app.cli.common import CommandError, UsageError, database_errors, show_columns
from app.cli.database import database
from app.cli.evaluation import evaluation
from app.cli.keys import keys
from app.cli.policies import policies
from app.cli.secrets import secrets
from app.settings import Settings, SettingsError, load_settings

cli = typer.Typer(
    name="groundlane",
    help="An OpenAI-compatible gateway that keeps RAG answers grounded.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
cli.add_typer(database, name="db")
cli.add_typer(evaluation, name="eval")
cli.add_typer(keys, name="keys")
cli.add_typer(policies, name="policies")
cli.add_typer(secrets, name="secrets")

_NOT_GROUNDED = 1


@cli.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on")] = 8080,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes")] = 1,
) -> None:
    """Run the gateway. Upgrades the database and, on the first start, creates the admin token."""
    from app.cli.serve import check_address, prepare
    from app.cli.serve import serve as run

    settings = load_settings()
    try:
        check_address(host, port)
    except OSError as error:
        reason = error.strerror or error
        raise CommandError(f"{host}, port {port}: {reason}. Choose another address with --host or --port.") from None
    with database_errors():
        token = prepare(settings)
    if token is not None:
        show_token(token)
    run(settings, host=host, port=port, workers=workers)


@cli.command()
def demo(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the gateway; 0 for any free port")] = 8080,
    keep: Annotated[bool, typer.Option("--keep", help="Keep database and requests in ./groundlane-demo")] = False,
    exit: Annotated[bool, typer.Option("--exit", help="Exit after the walkthrough")] = False,
) -> None:
    """Show what the gateway does, with a scripted model, then keep serving. Needs no account and no network."""
    from app.cli.demo.tour import TourError, tour

    try:
        with database_errors():
            tour(load_settings(), port=port, folder=Path("groundlane-demo") if keep else None, leave=exit)
    except TourError as error:
        raise CommandError(str(error)) from None


@cli.command()
def check(
    text: Annotated[Path, typer.Argument(help="File with the text; - for stdin")],
    sources: Annotated[list[Path], typer.Argument(help="Text files to check the text against")],
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON")] = False,
) -> None:
    """Check a text against source files, without a server. Exit code 1: the text is not grounded."""
    from app.cli.check import check_text, is_grounded, report_json, show_report
    from app.cli.terminal import Screen
    from app.judge_runtime.offline import JudgeMissingError

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
    """List every setting with its value (secrets masked), default and meaning."""
    show_columns([("SETTING", "VALUE", "DEFAULT", "MEANING"), *setting_rows(load_settings())])


def setting_rows(values: Settings) -> list[tuple[str, str, str, str]]:
    """List each setting as (variable, value, default, meaning); secrets are masked."""
    from app.observability.logs import mask

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


def show_token(token: str) -> None:
    """Print a new admin token. It is shown only once."""
    typer.echo(f"Admin token (shown only once, store it now): {token}", err=True)


def _read(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a UTF-8 text file") from None


def main() -> None:
    """Run the command. Exit codes: 1 for a failure, 2 for a bad setting or argument."""
    try:
        cli()
    except SettingsError as error:
        _fail(UsageError(str(error)))
    except CommandError as error:
        _fail(error)


def _fail(error: CommandError) -> NoReturn:
    typer.echo(f"Error: {error}", err=True)
    sys.exit(error.exit_code)
