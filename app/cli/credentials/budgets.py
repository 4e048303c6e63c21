"""``groundlane budgets``: manages the budgets of keys and agents in the database named in the settings."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.common import UsageError, show_columns, with_database
from app.settings import load_settings

if TYPE_CHECKING:
    from app.budgets import StoredBudget
    from app.db.database import Database

budgets = typer.Typer(help="Manage the budgets of keys and agents.", no_args_is_help=True)

Uncounted = Annotated[
    str | None, typer.Option(help="What to do with requests that the budget can't count: block or allow")
]


@budgets.command()
def create(
    subject: Annotated[str, typer.Argument(help="key or agent")],
    name: Annotated[str, typer.Argument(help="ID or prefix of the key, or name of the agent")],
    unit: Annotated[str, typer.Option(help="requests, tokens or cost")],
    period: Annotated[str, typer.Option(help="day or month, in UTC")],
    limit: Annotated[str, typer.Option(help="Number of requests or tokens, or US dollars")],
    uncounted: Uncounted = "block",
    json: Annotated[bool, typer.Option("--json", help="Print the budget as JSON")] = False,
) -> None:
    """Create a budget. Running gateways apply it within a second."""
    from app.api.admin.access.budgets import BudgetDocument, budget_draft
    from app.auth import KeyStore
    from app.budgets import BudgetStore

    values = {"subject": subject, "name": name, "unit": unit, "period": period, "limit": limit, "uncounted": uncounted}
    document = _checked(BudgetDocument, values)

    async def run(database: "Database") -> "StoredBudget":
        return await BudgetStore(database).create(await budget_draft(document, KeyStore(database)))

    made = with_database(load_settings().database_url, run)
    typer.echo(_json(made) if json else f"Budget {made.id}: {made.title()}.")


@budgets.command("list")
def list_budgets(json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line")] = False) -> None:
    """List the budgets with their usage in the current period, sorted by subject and name."""
    from app.budgets import BudgetStore

    async def found(database: "Database") -> list["StoredBudget"]:
        return list(await BudgetStore(database).list())

    listed = with_database(load_settings().database_url, found)
    if json:
        for budget in listed:
            typer.echo(_json(budget))
        return
    show_columns([("ID", "SUBJECT", "NAME", "UNIT", "PERIOD", "LIMIT", "USED", "RESETS"), *map(_row, listed)])


@budgets.command()
def change(
    budget: Annotated[str, typer.Argument(help="ID of the budget")],
    limit: Annotated[str | None, typer.Option(help="Number of requests or tokens, or US dollars")] = None,
    uncounted: Uncounted = None,
) -> None:
    """Change a budget's limit, or whether it blocks requests that it can't count. The amount already used is kept."""
    from app.api.admin.access.budgets import BudgetPatch
    from app.budgets import BudgetStore

    values = {name: value for name, value in (("limit", limit), ("uncounted", uncounted)) if value is not None}
    if not values:
        raise UsageError("nothing to change: use --limit or --uncounted")
    changes = _checked(BudgetPatch, values).model_dump(exclude_unset=True)
    changed = with_database(
        load_settings().database_url, lambda database: BudgetStore(database).change(budget, changes)
    )
    typer.echo(f"Budget {changed.id}: {changed.title()}.")


@budgets.command()
def delete(budget: Annotated[str, typer.Argument(help="ID of the budget")]) -> None:
    """Delete a budget and its counts."""
    from app.budgets import BudgetStore

    with_database(load_settings().database_url, lambda database: BudgetStore(database).delete(budget))
    typer.echo(f"Budget {budget} is deleted.")


def _checked(document: type[Any], values: dict[str, Any]) -> Any:
    """Read ``values`` as the admin API does. Raises UsageError."""
    from pydantic import ValidationError

    try:
        return document.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = f"{first['loc'][0]}: " if first["loc"] else ""
        raise UsageError(f"{field}{first['msg'].removeprefix('Value error, ')}") from None


def _json(budget: "StoredBudget") -> str:
    from app.api.admin.access.budgets import BudgetState

    return BudgetState.of(budget).model_dump_json()


def _row(budget: "StoredBudget") -> tuple[str, ...]:
    amounts = (f"{amount.normalize():f}" for amount in (budget.limit, budget.used))
    return (
        budget.id,
        budget.subject,
        budget.name,
        budget.unit,
        budget.period,
        *amounts,
        f"{budget.resets_at:%Y-%m-%d}",
    )
