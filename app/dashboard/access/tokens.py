"""``/dashboard/access``: creates and revokes admin tokens, and assigns roles to users."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.api.admin.access.tokens import RoleDocument, TokenId, UserId
from app.dashboard.error_messages import field_errors
from app.dashboard.page_security import DashboardRoute
from app.dashboard.templating import page
from app.dependencies import IdentityDep
from app.errors import ConflictError
from app.field_types import Line
from app.identity import Identity, Role, TokenDraft, requires

router = APIRouter(prefix="/access", route_class=DashboardRoute)
PATH = "/dashboard/access"
_MOST = 500
_FIELDS = ("name", "role", "expires_in_days")
_EMPTY = {"name": "", "role": "viewer", "expires_in_days": "90"}


class NewTokenForm(BaseModel):
    """The form for a new token. Without ``expires_in_days``, the token doesn't expire."""

    model_config = ConfigDict(extra="forbid")

    name: Line
    role: Role
    expires_in_days: Annotated[int, Field(ge=1, le=3_650)] | None = None

    def draft(self) -> TokenDraft:
        days = self.expires_in_days
        expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
        return TokenDraft(name=self.name, role=self.role, expires_at=expires_at)


@router.get("")
@requires(Role.ADMIN)
async def show_tokens(request: Request, identity: IdentityDep, revoked: bool = False) -> Response:
    """List the admin tokens and show a form to create one."""
    return await _list(request, identity, revoked=revoked)


@router.post("")
@requires(Role.ADMIN)
async def create_token(request: Request, identity: IdentityDep) -> Response:
    """Create a token and show it. This is the only time it is shown."""
    form = await request.form()
    filled = {name: str(form.get(name, "")).strip() for name in _FIELDS}
    try:
        document = NewTokenForm.model_validate({**filled, "expires_in_days": filled["expires_in_days"] or None})
        made = await identity.tokens.create(document.draft())
    except ValidationError as error:
        errors = field_errors(error)
        return await _list(request, identity, status=422, filled=filled, errors=errors)
    except ConflictError as error:
        return await _list(request, identity, status=409, filled=filled, errors={"name": error.message})
    return await _list(request, identity, status=201, made=made)


@router.post("/{token_id}/revoke")
@requires(Role.ADMIN)
async def revoke_token(identity: IdentityDep, token_id: TokenId) -> Response:
    await identity.tokens.revoke(token_id)
    return RedirectResponse(PATH, status_code=303)


@router.post("/users/{user_id}")
@requires(Role.ADMIN)
async def assign_role(request: Request, identity: IdentityDep, user_id: UserId) -> Response:
    """Assign a role to a user, or restore the role from the user's claims."""
    form = await request.form()
    document = RoleDocument.model_validate({"assigned_role": form.get("role") or None})
    await identity.users.assign(user_id, document.assigned_role)
    return RedirectResponse(PATH, status_code=303)


async def _list(
    request: Request, identity: Identity, *, status: int = 200, revoked: bool = False, **context: Any
) -> Response:
    context = {"filled": _EMPTY, "errors": {}, "made": None} | context
    return page(
        request,
        "access/tokens.html",
        status=status,
        users=await identity.users.list(),
        tokens=await identity.tokens.list(revoked=revoked, limit=_MOST),
        revoked=revoked,
        roles=list(Role),
        now=datetime.now(UTC),
        **context,
    )
