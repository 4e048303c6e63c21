"""``/admin/v1/tokens``, ``/admin/v1/users``, ``/admin/v1/sessions`` and ``/admin/v1/me``: access to the admin API and
the dashboard."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import AfterValidator, BaseModel, ConfigDict

from app.api.admin.common import AdminRoute, CursorText, Limit, PrincipalDep, decode_cursor, encode_cursor
from app.api.admin.events import Time
from app.dependencies import IdentityDep
from app.field_types import Line, Word
from app.identity import Assigned, CreatedToken, Role, StoredSession, StoredToken, StoredUser, TokenDraft, requires

router = APIRouter(route_class=AdminRoute, tags=["access"])

TokenId = Annotated[Word, Path(description="ID or prefix")]
UserId = Annotated[Word, Path(description="ID of the user")]
SessionId = Annotated[Word, Path(description="ID of the session")]


def _future(time: datetime) -> datetime:
    if time <= datetime.now(UTC):
        raise ValueError("must be in the future")
    return time


class TokenDocument(BaseModel):
    """An admin token to create. If ``expires_at`` is null, the token doesn't expire."""

    model_config = ConfigDict(extra="forbid")

    name: Line
    role: Role
    expires_at: Annotated[Time, AfterValidator(_future)] | None = None


class TokenPage(BaseModel):
    items: list[StoredToken]
    next_cursor: str | None


class UserPage(BaseModel):
    items: list[StoredUser]
    next_cursor: None = None


class RoleDocument(BaseModel):
    """The role to assign to a user, which overrides the role from the identity provider. ``none`` denies access;
    ``null`` removes the override."""

    model_config = ConfigDict(extra="forbid")

    assigned_role: Assigned | None


class SessionPage(BaseModel):
    items: list[StoredSession]
    next_cursor: None = None


class Caller(BaseModel):
    """The caller of the admin API. ``actor`` is the caller's name in the audit log."""

    name: str
    actor: str
    role: Role


@router.get("/me")
@requires(Role.VIEWER)
async def get_caller(principal: PrincipalDep) -> Caller:
    """Get the name and role of the token used for this request."""
    return Caller(name=principal.name, actor=principal.actor, role=principal.role)


@router.post("/tokens", status_code=201)
@requires(Role.ADMIN)
async def create_token(identity: IdentityDep, document: TokenDocument, response: Response) -> CreatedToken:
    """Create an admin token. ``token`` is returned only in this response."""
    made = await identity.tokens.create(TokenDraft(**document.model_dump()))
    response.headers["Location"] = f"/admin/v1/tokens/{made.id}"
    response.headers["Cache-Control"] = "no-store"
    return made


@router.get("/tokens")
@requires(Role.ADMIN)
async def list_tokens(
    identity: IdentityDep, revoked: bool | None = None, limit: Limit = 50, cursor: CursorText | None = None
) -> TokenPage:
    """List the admin tokens, sorted by name. Only the prefix of each token is returned."""
    after = None if cursor is None else decode_cursor(cursor, str, str)
    found = await identity.tokens.list(revoked=revoked, after=after, limit=limit + 1)
    items = list(found[:limit])
    more = len(found) > limit
    return TokenPage(items=items, next_cursor=encode_cursor(items[-1].name, items[-1].prefix) if more else None)


@router.get("/tokens/{token_id}")
@requires(Role.ADMIN)
async def get_token(identity: IdentityDep, token_id: TokenId) -> StoredToken:
    return await identity.tokens.get(token_id)


@router.delete("/tokens/{token_id}", status_code=204)
@requires(Role.ADMIN)
async def revoke_token(identity: IdentityDep, token_id: TokenId) -> None:
    """Revoke an admin token. Every worker rejects it immediately, and its sessions end. The revoked token stays in the
    list."""
    await identity.tokens.revoke(token_id)


@router.get("/users")
@requires(Role.ADMIN)
async def list_users(identity: IdentityDep) -> UserPage:
    """List the users who have signed in through the identity provider, sorted by name."""
    return UserPage(items=list(await identity.users.list()))


@router.patch("/users/{user_id}")
@requires(Role.ADMIN)
async def assign_role(identity: IdentityDep, user_id: UserId, document: RoleDocument) -> StoredUser:
    """Assign a role to a user. The role takes effect on the user's next request."""
    return await identity.users.assign(user_id, document.assigned_role)


@router.get("/sessions")
@requires(Role.ADMIN)
async def list_sessions(identity: IdentityDep) -> SessionPage:
    """List everyone's active dashboard sessions, most recently used first."""
    return SessionPage(items=list(await identity.sessions.list()))


@router.delete("/sessions/{session_id}", status_code=204)
@requires(Role.ADMIN)
async def end_session(identity: IdentityDep, session_id: SessionId) -> None:
    """End a dashboard session. Every worker rejects it immediately, and the user must sign in again."""
    await identity.sessions.end(session_id)
