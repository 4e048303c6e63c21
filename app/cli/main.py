"""The ``groundlane`` command. Errors are reported as one line on stderr and an exit code, never as a stack trace."""

import sys
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from app.cli.common import CommandError, UsageError, database_errors, show_columns
from app.cli.credentials.budgets import budgets
from app.cli.credentials.keys import keys
from app.cli.credentials.secrets import secrets
from app.cli.credentials.sessions import sessions
from app.cli.credentials.tokens import tokens
from app.cli.credentials.users import users
from app.cli.database import database
from app.cli.evaluation import evaluation
from app.cli.judge_comparison import judges as compare_judges
from app.cli.policies import policies
from app.settings import Settings, SettingsError, environment_variables, load_settings, unknown_settings

cli = typer.Typer(
    name="groundlane",
    help="An OpenAI-compatible gateway that keeps RAG answers grounded.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
judge_server = typer.Typer(help="Serve the judge on its own.", no_args_is_help=True)
cli.add_typer(budgets, name="budgets")
cli.add_typer(database, name="db")
cli.add_typer(evaluation, name="eval")
evaluation.command("judges")(compare_judges)
cli.add_typer(judge_server, name="judge")
cli.add_typer(keys, name="keys")
cli.add_typer(policies, name="policies")
cli.add_typer(secrets, name="secrets")
cli.add_typer(sessions, name="sessions")
cli.add_typer(tokens, name="tokens")
cli.add_typer(users, name="users")

_NOT_GROUNDED = 1


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"groundlane {version('groundlane')}")
        raise typer.Exit


@cli.callback()
def every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit")
    ] = False,
) -> None:
    """An OpenAI-compatible gateway that keeps RAG answers grounded."""
    warn_of_unknown_settings()


@cli.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on")] = 8080,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes")] = 1,
) -> None:
    """Run the gateway. Upgrades the database and, on the first start, creates an admin token."""
    from app.cli.serve import prepare
    from app.cli.serve import serve as run

    settings = load_settings()
    _check_address(host, port)
    with database_errors():
        token = prepare(settings)
    if token is not None:
        show_token(token)
    if settings.dashboard and port:
        typer.echo(f"Dashboard: http://{shown_host(host)}:{port}/dashboard", err=True)
    run(settings, host=host, port=port, workers=workers)


@cli.command()
def demo(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port for the gateway; 0 picks a free port")] = 8080,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the demo's files in ./groundlane-demo")] = False,
    exit: Annotated[bool, typer.Option("--exit", help="Exit after the walkthrough")] = False,
) -> None:
    """Show what the gateway does, using a scripted model, and then keep serving. Needs no account and no network."""
    from app.cli.demo.tour import TourError, tour

    try:
        with database_errors():
            tour(load_settings(), port=port, folder=Path("groundlane-demo") if keep else None, leave=exit)
    except TourError as error:
        raise CommandError(str(error)) from None


@cli.command()
def check(
    text: Annotated[Path, typer.Argument(help="File with the text to check; - for stdin")],
    sources: Annotated[list[Path], typer.Argument(help="Text files to check the text against")],
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Allow no unverifiable claims (default: at most half)")
    ] = False,
) -> None:
    """Check text against source files without a server.

    The exit code is 0 if the text is grounded, 1 if it is not grounded, and 2 if it could not be checked. Text is
    grounded if all of it was judged, no claim is contradicted, and at most half of the claims are unverifiable (with
    --strict, none).
    """
    from app.cli.check import check_text, is_grounded, report_json, show_report
    from app.cli.terminal import Screen
    from app.judge_runtime.offline import JudgeMissingError

    try:
        report = check_text(load_settings(), _read(text), {str(source): _read(source) for source in sources})
    except JudgeMissingError as error:
        raise SettingsError(f"GROUNDLANE_JUDGE: {error}") from None
    if json:
        typer.echo(report_json(report, strict=strict))
    else:
        show_report(report, Screen(), strict=strict)
    raise typer.Exit(0 if is_grounded(report, strict=strict) else _NOT_GROUNDED)


@judge_server.command("serve")
def serve_judge(
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on")] = 9000,
) -> None:
    """Serve the judge in GROUNDLANE_JUDGE over HTTP. Gateways use it with GROUNDLANE_JUDGE=http:URL."""
    from app.cli.judges import serve_judge

    settings = load_settings()
    _check_address(host, port)
    serve_judge(settings, host=host, port=port)


@cli.command()
def judges(
    name: Annotated[str | None, typer.Argument(help="Show only this judge, with its figures and sources")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """List the judge presets (GROUNDLANE_JUDGE=preset:NAME)."""
    from app.cli.judges import list_judges, show_judge

    if name is None:
        list_judges(json=json)
    else:
        show_judge(name, json=json)


@cli.command()
def settings() -> None:
    """List every setting with its value, default and meaning. Secrets are masked."""
    show_columns([("SETTING", "VALUE", "DEFAULT", "MEANING"), *setting_rows(load_settings())])


def setting_rows(values: Settings) -> list[tuple[str, str, str, str]]:
    """Return each setting as (variable, value, default, meaning). Secrets are masked."""
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


def warn_of_unknown_settings() -> None:
    """Print a warning for each environment variable or line in ``.env`` that looks like a setting but isn't one."""
    environment = environment_variables()
    try:
        config = Path(environment.get("GROUNDLANE_CONFIG", "")).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        config = ""  # The command that needs the file reports the error.
    for name, nearest in unknown_settings(environment, config).items():
        hint = f" Did you mean {nearest}?" if nearest else " `groundlane settings` lists all settings."
        typer.echo(f"Warning: {name} is not a setting and has no effect.{hint}", err=True)


def shown_host(host: str) -> str:
    """Return the host to use in URLs, from this machine, for a server that listens on ``host``."""
    with suppress(ValueError):
        if ip_address(host).is_unspecified:
            return "localhost"
    return f"[{host}]" if ":" in host else host


def _check_address(host: str, port: int) -> None:
    from app.cli.serve import check_address

    try:
        check_address(host, port)
    except OSError as error:
        reason = error.strerror or error
        raise CommandError(f"{host}, port {port}: {reason}. Choose another address with --host or --port.") from None


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
    """Run the command. The exit code is 1 for a failure and 2 for an invalid setting or argument."""
    try:
        cli()
    except SettingsError as error:
        _fail(UsageError(str(error)))
    except CommandError as error:
        _fail(error)


def _fail(error: CommandError) -> NoReturn:
    typer.echo(f"Error: {error}", err=True)
    sys.exit(error.exit_code)
