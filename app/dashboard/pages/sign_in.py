"""Handles signing in and out, the colour theme and the static files."""

from datetime import timedelta
from secrets import token_urlsafe
from typing import Annotated

import structlog
from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from app.dashboard.page_security import DashboardRoute, OpenRoute
from app.dashboard.session_cookie import (
    COOKIE,
    GUEST_COOKIE,
    PATH,
    OperatorDep,
    may_attempt_sign_in,
    safe_next,
    session_id,
    sessions_of,
    set_cookie,
    start_session,
)
from app.dashboard.static_files import STATIC_FILES, STATIC_VERSION
from app.dashboard.templating import THEME_COOKIE, THEMES, page
from app.dependencies import ResourcesDep
from app.identity import Role, requires

router = APIRouter(route_class=OpenRoute)
signed_in = APIRouter(route_class=DashboardRoute)
_log = structlog.stdlib.get_logger(__name__)
_YEAR = timedelta(days=365)
_FOR_GOOD = "public, max-age=31536000, immutable"


@router.get("/sign-in")
async def sign_in_form(request: Request, next: str | None = None) -> Response:
    if request.state.operator is not None:
        return RedirectResponse(safe_next(next), status_code=303)
    return _form(request, next)


@router.post("/sign-in")
async def sign_in(
    request: Request,
    resources: ResourcesDep,
    token: Annotated[str, Form()] = "",
    next: Annotated[str | None, Form()] = None,
) -> Response:
    """Exchange an admin token for a session."""
    client = request.client.host if request.client else None
    if not await may_attempt_sign_in(request):
        _log.warning("dashboard_sign_in_throttled", client=client)
        return _form(
            request, next, status=429, message="Too many attempts from this address. Wait a minute and try again."
        )
    if not token.strip():
        return _form(request, next, status=422, message="Enter the admin token.")
    principal = await resources.identity.bearer(token.strip())
    if principal is None:
        resources.wrong_tokens.note(client)  # without a delay, because attempts per address are already limited
        _log.warning("dashboard_sign_in_refused", client=client)
        return _form(request, next, status=401, message="This admin token is invalid, revoked or expired.")
    response = RedirectResponse(safe_next(next), status_code=303)
    await start_session(request, response, principal, before=session_id(request))
    _log.info("dashboard_signed_in", client=client, actor=principal.actor)
    return response


@signed_in.post("/sign-out")
@requires(Role.VIEWER)
async def sign_out(request: Request, resources: ResourcesDep, operator: OperatorDep) -> Response:
    """End the session. If the operator signed in with the provider, also end the session there."""
    await sessions_of(request).close(operator.id)
    provider = resources.oidc if operator.principal.kind == "user" else None
    url = None if provider is None else await provider.sign_out_url()
    if url is None:
        response: Response = RedirectResponse(f"{PATH}/sign-in", status_code=303)
    else:  # The content security policy doesn't let a form redirect to another site.
        response = page(request, "sign_in/sign_out.html", url=url)
    response.delete_cookie(COOKIE, path=PATH)
    return response


@signed_in.post("/theme")
@requires(Role.VIEWER)
async def set_theme(
    request: Request, theme: Annotated[str, Form()], next: Annotated[str | None, Form()] = None
) -> Response:
    """Store the colour theme in a cookie for a year."""
    response = RedirectResponse(safe_next(next), status_code=303)
    set_cookie(request, response, THEME_COOKIE, theme if theme in THEMES else THEMES[0], lasts=_YEAR)
    return response


@router.get("/static/{version}/{name}")
async def static_file(version: str, name: str) -> Response:
    """Serve a static file. A request for an outdated version gets the current file, because a page may be older than
    the running gateway."""
    file = STATIC_FILES.get(name)
    if file is None:
        raise HTTPException(404, "File not found.")
    kept = _FOR_GOOD if version == STATIC_VERSION else "no-store"
    return Response(file.body, media_type=file.media_type, headers={"Cache-Control": kept})


def _form(request: Request, next: str | None, *, status: int = 200, message: str | None = None) -> Response:
    nonce = request.cookies.get(GUEST_COOKIE) or token_urlsafe(32)
    guest, provider = sessions_of(request).guest(nonce), request.state.resources.oidc is not None
    response = page(
        request,
        "sign_in/page.html",
        status=status,
        message=message,
        next=safe_next(next),
        guest=guest,
        provider=provider,
    )
    set_cookie(request, response, GUEST_COOKIE, nonce, lasts=None)
    return response
