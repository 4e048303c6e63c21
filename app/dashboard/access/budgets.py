"""``/dashboard/budgets``: the budgets of keys and agents, and their usage."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from app.analytics.usage import TokenStatistics
from app.api.admin.access.budgets import BudgetDocument, BudgetId, BudgetPatch, budget_draft
from app.auth import KeyStore
from app.budgets import BudgetDraft, BudgetUnit
from app.dashboard.error_messages import field_errors
from app.dashboard.known_values import distinct_values
from app.dashboard.page_security import DashboardRoute
from app.dashboard.templating import page
from app.dependencies import BudgetsDep, KeysDep, ResourcesDep
from app.errors import ConflictError, NotFoundError
from app.events.filters import EventFilter
from app.identity import Role, requires
from app.resources import Resources

router = APIRouter(prefix="/budgets", route_class=DashboardRoute)
PATH = "/dashboard/budgets"
_EMPTY = {"subject": "key", "name": "", "unit": "requests", "period": "day", "limit": "", "uncounted": "block"}
_RECENT = timedelta(days=30)
_MOST_KEYS = 200


@router.get("")
@requires(Role.VIEWER)
async def show_budgets(request: Request, resources: ResourcesDep, done: str = "") -> Response:
    """Show the budgets and their usage, and a form to create one."""
    return await _list(request, resources, done=done)


@router.post("")
@requires(Role.ADMIN)
async def create_budget(request: Request, resources: ResourcesDep, store: BudgetsDep, keys: KeysDep) -> Response:
    """Create a budget. If it would have rejected recent requests, ask for confirmation first."""
    form = await request.form()
    filled = {name: str(form.get(name, unset)).strip() for name, unset in _EMPTY.items()}
    try:
        document = BudgetDocument.model_validate(filled)
        if document.subject == "key":
            document = document.model_copy(update={"name": await _named_key(keys, document.name)})
        draft = await budget_draft(document, keys)
        confirmed = form.get("confirmed") == f"{document.subject} {filled['name']}"
        if not confirmed and (rejected := await _rejected_models(resources, draft)):
            return await _list(request, resources, status=409, filled=filled, rejected=rejected)
        await store.create(draft)
    except ValidationError as error:
        return await _list(request, resources, status=422, filled=filled, errors=field_errors(error, "limit"))
    except (ConflictError, NotFoundError) as error:
        return await _list(request, resources, status=error.status, filled=filled, errors={"name": error.message})
    return RedirectResponse(f"{PATH}?done=created", status_code=303)


@router.post("/{budget_id}")
@requires(Role.ADMIN)
async def change_budget(request: Request, resources: ResourcesDep, store: BudgetsDep, budget_id: BudgetId) -> Response:
    """Change the limit."""
    form = await request.form()
    try:
        patch = BudgetPatch.model_validate({"limit": str(form.get("limit", "")).strip()})
        await store.change(budget_id, patch.model_dump(exclude_unset=True))
    except ValidationError as error:
        return await _list(request, resources, status=422, wrong=budget_id, errors=field_errors(error, "limit"))
    return RedirectResponse(PATH, status_code=303)


@router.post("/{budget_id}/delete")
@requires(Role.ADMIN)
async def delete_budget(store: BudgetsDep, budget_id: BudgetId) -> Response:
    await store.delete(budget_id)
    return RedirectResponse(PATH, status_code=303)


async def _list(request: Request, resources: Resources, *, status: int = 200, **context: Any) -> Response:
    context = {"filled": _EMPTY, "errors": {}, "wrong": None, "rejected": (), "done": ""} | context
    budgets = await resources.budgets.list()
    keys = await resources.keys.list(revoked=False, limit=_MOST_KEYS)
    return page(
        request,
        "access/budgets.html",
        status=status,
        budgets=budgets,
        keys=await resources.keys.names({budget.name for budget in budgets if budget.subject == "key"}),
        known=sorted({*(key.name for key in keys), *await distinct_values(resources.database, "agent")}),
        **context,
    )


async def _named_key(keys: KeyStore, name: str) -> str:
    """Return the prefix of the key with this name, or ``name`` if there is none. Raises ConflictError if several keys
    have the name."""
    found = await keys.list(name=name, revoked=False, limit=2)
    if len(found) > 1:
        raise ConflictError(f"Several keys are named {name!r}. Enter the prefix of one of them.")
    return found[0].prefix if found else name


async def _rejected_models(resources: Resources, draft: BudgetDraft) -> Sequence[tuple[str, int]]:
    """Return the models whose requests a cost budget would reject because their price is unknown, with the number of
    recent requests."""
    if draft.unit is not BudgetUnit.COST or draft.uncounted == "allow":
        return ()
    now = datetime.now(UTC)
    agent, key = (draft.name, None) if draft.subject == "agent" else (None, draft.name)
    recent = EventFilter(since=now - _RECENT, until=now, agent=agent)
    groups = await TokenStatistics(resources.database, resources.prices).groups(recent, "model", key=key)
    return [
        (model, usage.requests)
        for model, usage in groups
        if model is not None and resources.prices.cost_of(model, 0, 0) is None
    ]
