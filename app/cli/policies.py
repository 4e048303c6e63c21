"""``groundlane policies``: those of a file and those in force."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from app.cli.common import CommandError, UsageError, show_columns, with_database
from app.settings import Settings, load_settings

if TYPE_CHECKING:
    from app.cli.apply_policies import Plan, Present, Target
    from app.db.database import Database
    from app.policy_admin.policy_document import PolicyDraft

policies = typer.Typer(
    help="Policies: those in force, and those of a file. In the settings' database, or through a gateway (--url).",
    no_args_is_help=True,
)

T = TypeVar("T")
_DIFFERENT = 3
_TIMEOUT_S = 30.0

Url = Annotated[
    str | None,
    typer.Option(help="Address of a gateway, whose admin token GROUNDLANE_ADMIN_TOKEN is; left out: the database"),
]
File = Annotated[Path, typer.Option("--file", "-f", help="TOML or JSON file; -: stdin, JSON")]
Prune = Annotated[bool, typer.Option("--prune", help="Policies that are not in the file are to go")]


@policies.command("list")
def list_policies(
    url: Url = None,
    json: Annotated[bool, typer.Option("--json", help="As a file that `apply` reads")] = False,
) -> None:
    """List the policies by name."""
    from app.cli.apply_policies import policy_file

    found = _at(url, lambda target: target.list())
    if json:
        typer.echo(policy_file([policy.draft for policy in found]))
        return
    heading = ("NAME", "CATEGORY", "MODE", "ENABLED", "PRIORITY", "VERSION", "ID")
    show_columns([heading, *(_row(policy) for policy in found)])


@policies.command()
def diff(file: File, url: Url = None, prune: Prune = False) -> None:
    """Show what `apply` would change. Exit code 0: nothing; 3: something."""
    plan = _at(url, _planned(_read(file), prune))
    _show(plan)
    raise typer.Exit(_DIFFERENT if plan.steps else 0)


@policies.command()
def apply(
    file: File,
    url: Url = None,
    prune: Prune = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
) -> None:
    """Bring the policies to what the file says, after showing what changes. Done again, it does nothing."""
    from app.cli.apply_policies import carry_out

    wanted = _read(file)
    plan = _at(url, _planned(wanted, prune))
    _show(plan)
    if dry_run or not plan.steps:
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("nobody can be asked here: confirm with --yes")
        if not typer.confirm("Change them?"):
            raise CommandError("nothing was changed")
    # The plan that was shown, not a new one: what has changed since is refused by its version.
    _at(url, lambda target: carry_out(plan, target))
    typer.echo("Done.")


def _planned(wanted: "list[PolicyDraft]", prune: bool) -> Callable[["Target"], Awaitable["Plan"]]:
    from app.cli.apply_policies import make_plan

    async def planned(target: "Target") -> "Plan":
        return make_plan(wanted, await target.list(), prune=prune)

    return planned


def _at(url: str | None, work: Callable[["Target"], Awaitable[T]]) -> T:
    """The result of ``work`` where the policies are. Raises SettingsError or CommandError."""
    settings = load_settings()
    if url is not None:
        return _at_gateway(url, settings, work)
    from app.cli.apply_policies import StoreTarget
    from app.policy_admin.policy_store import PolicyStore

    async def stored(database: "Database") -> T:
        return await work(StoreTarget(PolicyStore(database)))

    return with_database(settings.database_url, stored)


def _at_gateway(url: str, settings: Settings, work: Callable[["Target"], Awaitable[T]]) -> T:
    import asyncio

    import httpx

    from app.cli.apply_policies import GatewayTarget, TargetError

    if settings.admin_token is None:
        raise UsageError("GROUNDLANE_ADMIN_TOKEN: not set; --url needs the admin token of that gateway")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url: {url!r} does not begin with http:// or https://")
    headers = {"Authorization": f"Bearer {settings.admin_token.get_secret_value()}"}

    async def asked() -> T:
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=_TIMEOUT_S) as client:
            return await work(GatewayTarget(client))

    try:
        return asyncio.run(asked())
    except httpx.InvalidURL:
        raise UsageError(f"--url: {url!r} is no address") from None
    except TargetError as error:
        raise CommandError(str(error)) from None


def _read(file: Path) -> "list[PolicyDraft]":
    from app.cli.apply_policies import PolicyFileError, read_policies

    stdin = str(file) == "-"
    try:
        text = sys.stdin.read() if stdin else file.read_text("utf-8")
        return list(read_policies(text, json=stdin or file.suffix == ".json"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not a UTF-8 text file") from None
    except PolicyFileError as error:
        raise UsageError(f"{file}: {error}") from None


def _show(plan: "Plan") -> None:
    from app.cli.apply_policies import told

    for step in plan.steps:
        for line in told(step):
            typer.echo(line)
    counts = f"{len(plan.steps)} to change, {len(plan.unchanged)} as they should be"
    left = f", {len(plan.others)} not in the file and left alone" if plan.others else ""
    typer.echo(f"{counts}{left}.")


def _row(policy: "Present") -> tuple[str, ...]:
    draft = policy.draft
    mode = draft.mode if draft.canary_percent == 100 else f"{draft.mode} {draft.canary_percent}%"
    enabled = "yes" if draft.enabled else "no"
    return (draft.name, draft.category, mode, enabled, str(draft.priority), str(policy.version), policy.id)
