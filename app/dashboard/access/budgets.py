"""``/dashboard/budgets``: the budgets of keys and agents, and their usage."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from app.api.admin.access.budgets import BudgetDocument, BudgetId, BudgetPatch, budget_draft
from app.dashboard.error_messages import field_errors
from app.dashboard.page_security import DashboardRoute
from app.dashboard.templating import page
from app.dependencies import BudgetsDep, KeysDep
from app.errors import ConflictError, NotFoundError
from app.identity import Role, requires

router = APIRouter(prefix="/budgets", route_class=DashboardRoute)
PATH = "/dashboard/budgets"
_EMPTY = {"subject": "key", "name": "", "unit": "requests", "period": "day", "limit": "", "uncounted": "block"}


@router.get("")
@requires(Role.VIEWER)
async def show_budgets(request: Request, store: BudgetsDep) -> Response:
    """Show the budgets and their usage, and a form to create one."""
    return await _list(request, store)


@router.post("")
@requires(Role.ADMIN)
async def create_budget(request: Request, store: BudgetsDep, keys: KeysDep) -> Response:
    form = await request.form()
    filled = {name: str(form.get(name, unset)).strip() for name, unset in _EMPTY.items()}
    try:
        await store.create(await budget_draft(BudgetDocument.model_validate(filled), keys))
    except ValidationError as error:
        return await _list(request, store, status=422, filled=filled, errors=field_errors(error, "limit"))
    except (ConflictError, NotFoundError) as error:
        return await _list(request, store, status=error.status, filled=filled, errors={"name": error.message})
    return RedirectResponse(PATH, status_code=303)


@router.post("/{budget_id}")
@requires(Role.ADMIN)
async def change_budget(request: Request, store: BudgetsDep, budget_id: BudgetId) -> Response:
    """Change the limit."""
    form = await request.form()
    try:
        patch = BudgetPatch.model_validate({"limit": str(form.get("limit", "")).strip()})
        await store.change(budget_id, patch.model_dump(exclude_unset=True))
    except ValidationError as error:
        return await _list(request, store, status=422, wrong=budget_id, errors=field_errors(error, "limit"))
    return RedirectResponse(PATH, status_code=303)


@router.post("/{budget_id}/delete")
@requires(Role.ADMIN)
async def delete_budget(store: BudgetsDep, budget_id: BudgetId) -> Response:
    await store.delete(budget_id)
    return RedirectResponse(PATH, status_code=303)


async def _list(request: Request, store: BudgetsDep, *, status: int = 200, **context: Any) -> Response:
    context = {"filled": _EMPTY, "errors": {}, "wrong": None} | context
    return page(request, "access/budgets.html", status=status, budgets=await store.list(), **context)
