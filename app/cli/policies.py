"""``groundlane policies``: lists policies and updates them to match a file."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from app.cli.common import CommandError, UsageError, show_columns, with_database
from app.settings import Settings, load_settings

if TYPE_CHECKING:
    from app.cli.apply_policies import ExistingPolicy, PolicyChanges, PolicyTarget
    from app.db.database import Database
    from app.policy_admin.policy_document import PolicyDraft
    from policies.policy_warnings import GatewayFacts

policies = typer.Typer(
    help="Manage policies with a file, either in the configured database or through a running gateway (--url).",
    no_args_is_help=True,
)

T = TypeVar("T")
_DIFFERENT = 3
_TIMEOUT_S = 30.0

Url = Annotated[
    str | None,
    typer.Option(help="URL of a running gateway (admin token in GROUNDLANE_ADMIN_TOKEN); default: the database"),
]
File = Annotated[Path, typer.Option("--file", "-f", help="TOML or JSON file; - for JSON on stdin")]
Prune = Annotated[bool, typer.Option("--prune", help="Delete policies that are not in the file")]


@policies.command("list")
def list_policies(
    url: Url = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON that `apply` can read")] = False,
) -> None:
    """List the policies, sorted by name."""
    from app.cli.apply_policies import policy_file

    found = _at(url, lambda target: target.list())
    if json:
        typer.echo(policy_file([policy.draft for policy in found]))
        return
    heading = ("NAME", "CATEGORY", "MODE", "ENABLED", "PRIORITY", "VERSION", "ID")
    show_columns([heading, *(_row(policy) for policy in found)])


@policies.command()
def diff(file: File, url: Url = None, prune: Prune = False) -> None:
    """Show what `apply` would change. Exits with code 3 if there are changes."""
    plan = _show(_at(url, _planned(_read(file), prune)))
    raise typer.Exit(_DIFFERENT if plan.changes else 0)


@policies.command()
def apply(
    file: File,
    url: Url = None,
    prune: Prune = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the changes")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")] = False,
) -> None:
    """Show the changes, then update the policies to match the file. Running it again changes nothing."""
    from app.cli.apply_policies import apply_changes

    plan = _show(_at(url, _planned(_read(file), prune)))
    if dry_run or not plan.changes:
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("stdin is not a terminal: confirm with --yes")
        if not typer.confirm("Apply these changes?"):
            raise CommandError("nothing was changed")
    # Apply the plan that was shown, not an updated one. If a policy has changed since, the update is rejected.
    _at(url, lambda target: apply_changes(plan, target))
    typer.echo("Done.")


def _planned(
    wanted: "list[PolicyDraft]", prune: bool
) -> Callable[["PolicyTarget"], Awaitable[tuple["PolicyChanges", Sequence[str]]]]:
    """Return a function that computes the changes and the warnings about them."""
    from app.cli.apply_policies import plan_changes, warnings_about

    async def planned(target: "PolicyTarget") -> tuple["PolicyChanges", Sequence[str]]:
        plan = plan_changes(wanted, await target.list(), prune=prune)
        return plan, await warnings_about(plan, target)

    return planned


def _at(url: str | None, work: Callable[["PolicyTarget"], Awaitable[T]]) -> T:
    """Run ``work`` on the database, or on the gateway at ``url``, and return its result.

    Raises SettingsError or CommandError.
    """
    settings = load_settings()
    if url is not None:
        return _at_gateway(url, settings, work)
    from app.cli.apply_policies import StoreTarget
    from app.policy_admin.policy_store import PolicyStore

    facts = _facts(settings)

    async def stored(database: "Database") -> T:
        return await work(StoreTarget(PolicyStore(database), facts))

    return with_database(settings.database_url, stored)


def _facts(settings: Settings) -> "GatewayFacts":
    """Derive facts about the gateways from ``settings``. The settings don't include gateway keys. Raises
    SettingsError."""
    from app.config import load_config
    from app.upstream.router import Router
    from policies.policy_warnings import GatewayFacts

    fault = "GROUNDLANE_LLM_JUDGE_MODEL is not set" if settings.llm_judge_model is None else None
    return GatewayFacts(serves=Router(load_config(settings).upstreams).serves, llm_fault=fault)


def _at_gateway(url: str, settings: Settings, work: Callable[["PolicyTarget"], Awaitable[T]]) -> T:
    import asyncio

    import httpx

    from app.cli.apply_policies import GatewayTarget, TargetError

    if settings.admin_token is None:
        raise UsageError("GROUNDLANE_ADMIN_TOKEN: not set; --url requires the gateway's admin token")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url: {url!r} must start with http:// or https://")
    headers = {"Authorization": f"Bearer {settings.admin_token.get_secret_value()}"}

    async def asked() -> T:
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=_TIMEOUT_S) as client:
            return await work(GatewayTarget(client))

    try:
        return asyncio.run(asked())
    except httpx.InvalidURL:
        raise UsageError(f"--url: {url!r} is not a valid URL") from None
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


def _show(planned: tuple["PolicyChanges", Sequence[str]]) -> "PolicyChanges":
    from app.cli.apply_policies import describe

    plan, warnings = planned
    for step in plan.changes:
        for line in describe(step):
            typer.echo(line)
    counts = f"{len(plan.changes)} to change, {len(plan.unchanged)} unchanged"
    others = f", {len(plan.others)} not in the file (kept)" if plan.others else ""
    typer.echo(f"{counts}{others}.")
    for warning in warnings:
        typer.echo(f"Warning: {warning}", err=True)
    return plan


def _row(policy: "ExistingPolicy") -> tuple[str, ...]:
    draft = policy.draft
    mode = draft.mode if draft.canary_percent == 100 else f"{draft.mode} {draft.canary_percent}%"
    enabled = "yes" if draft.enabled else "no"
    return (draft.name, draft.category, mode, enabled, str(draft.priority), str(policy.version), policy.id)
