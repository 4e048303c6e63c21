"""``/admin/v1/budgets``: daily and monthly budgets for keys and agents."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.api.admin.common import AdminRoute
from app.auth import KeyStore
from app.budgets import BudgetDraft, BudgetUnit, Period, StoredBudget, Subject, Uncounted
from app.dependencies import BudgetsDep, KeysDep
from app.field_types import Line, Word
from app.identity import Role, requires

router = APIRouter(prefix="/budgets", route_class=AdminRoute, tags=["budgets"])

BudgetId = Annotated[Word, Path(description="ID of the budget")]
Amount = Annotated[Decimal, Field(gt=0, le=1_000_000_000, decimal_places=6)]


class BudgetDocument(BaseModel):
    """A budget to create. ``name`` is the id or prefix of a key, or the name of an agent. ``limit`` is in requests,
    tokens or US dollars, depending on ``unit``. ``uncounted`` says whether to block or allow requests that the budget
    can't count."""

    model_config = ConfigDict(extra="forbid")

    subject: Subject
    name: Line
    unit: BudgetUnit
    period: Period
    limit: Amount
    uncounted: Uncounted = "block"

    @model_validator(mode="after")
    def _whole(self) -> "BudgetDocument":
        if self.unit is not BudgetUnit.COST and self.limit != self.limit.to_integral_value():
            raise ValueError("limit: expected a whole number")
        return self


class BudgetPatch(BaseModel):
    """The fields of a budget to change."""

    model_config = ConfigDict(extra="forbid")

    limit: Amount = Field(default_factory=Decimal)  # Unlike a plain default, a factory doesn't appear in the schema.
    uncounted: Uncounted = "block"


class BudgetState(BaseModel):
    """A budget and its usage in the current period. Amounts are in requests, tokens or US dollars. ``unpriced`` counts
    the requests in this period whose cost isn't fully known. ``name`` is the prefix of a key or the name of an
    agent."""

    id: str
    subject: Subject
    name: str
    unit: BudgetUnit
    period: Period
    limit: float
    used: float
    remaining: float
    unpriced: int
    uncounted: Uncounted
    resets_at: datetime
    created_at: datetime

    @classmethod
    def of(cls, budget: StoredBudget) -> "BudgetState":
        return cls.model_validate(budget, from_attributes=True)


class BudgetPage(BaseModel):
    items: list[BudgetState]
    next_cursor: None = None


async def budget_draft(document: BudgetDocument, keys: KeyStore) -> BudgetDraft:
    """Return the budget to create. If the budget is for a key, its name is the key's prefix. Raises NotFoundError for
    an unknown key."""
    values = document.model_dump()
    if document.subject == "key":
        values["name"] = (await keys.get(document.name)).prefix
    return BudgetDraft(**values)


@router.post("", status_code=201)
@requires(Role.ADMIN)
async def create_budget(store: BudgetsDep, keys: KeysDep, document: BudgetDocument, response: Response) -> BudgetState:
    """Create a budget. Within a second, every worker applies it and starts counting."""
    made = await store.create(await budget_draft(document, keys))
    response.headers["Location"] = f"/admin/v1/budgets/{made.id}"
    return BudgetState.of(made)


@router.get("")
@requires(Role.VIEWER)
async def list_budgets(store: BudgetsDep) -> BudgetPage:
    """List the budgets, sorted by subject and name, with their usage in the current period."""
    return BudgetPage(items=[BudgetState.of(budget) for budget in await store.list()])


@router.get("/{budget_id}")
@requires(Role.VIEWER)
async def get_budget(store: BudgetsDep, budget_id: BudgetId) -> BudgetState:
    """Get a budget and its usage in the current period."""
    return BudgetState.of(await store.get(budget_id))


@router.patch("/{budget_id}")
@requires(Role.ADMIN)
async def change_budget(store: BudgetsDep, budget_id: BudgetId, patch: BudgetPatch) -> BudgetState:
    """Change the limit of a budget, or how it treats requests that it can't count. This doesn't reset the usage."""
    return BudgetState.of(await store.change(budget_id, patch.model_dump(exclude_unset=True)))


@router.delete("/{budget_id}", status_code=204)
@requires(Role.ADMIN)
async def delete_budget(store: BudgetsDep, budget_id: BudgetId) -> None:
    """Delete a budget and its recorded usage."""
    await store.delete(budget_id)
