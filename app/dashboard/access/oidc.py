"""``/dashboard/sign-in/oidc``: signs users in with an OpenID Connect provider. These pages don't require a session."""

from datetime import timedelta

import structlog
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from app.auth.audit_log import acting_as
from app.dashboard.page_security import OpenRoute
from app.dashboard.session_cookie import PATH, is_https, may_attempt_sign_in, safe_next, session_id, start_session
from app.dashboard.templating import page
from app.dependencies import ResourcesDep
from app.errors import SignInError
from app.identity.oidc import FLOW_LIFETIME, OidcProvider
from app.resources import Resources

router = APIRouter(prefix="/sign-in/oidc", route_class=OpenRoute)
FLOW_COOKIE = "groundlane_sign_in"
_COOKIE_PATH = f"{PATH}/sign-in/oidc"
_log = structlog.stdlib.get_logger(__name__)


@router.get("")
async def begin_sign_in(request: Request, resources: ResourcesDep, next: str | None = None) -> Response:
    """Redirect the browser to the provider."""
    try:
        # Store the session id in the flow, because the provider's redirect comes without the session cookie.
        url, flow = await _provider(resources).begin(safe_next(next), session=session_id(request))
    except SignInError as error:
        return _refused(request, error)
    response = RedirectResponse(url, status_code=303)
    _set_flow(request, response, flow, FLOW_LIFETIME)
    return response


@router.get("/callback")
async def finish_sign_in(request: Request, resources: ResourcesDep) -> Response:
    """Handle the redirect from the provider: exchange its code for the user's identity."""
    if not await may_attempt_sign_in(request):
        raise HTTPException(429, "Too many attempts from this address. Wait a minute and try again.")
    cookie = request.cookies.get(FLOW_COOKIE, "")
    try:
        signed_in = await _provider(resources).finish(dict(request.query_params), cookie)
        who = signed_in.user
        with acting_as(f"user:{who.name}"):
            user = await resources.identity.users.signed_in(who)
        if user.principal is None:
            raise SignInError(f"{who.name} has no role on this gateway. Ask an admin to assign one.")
    except SignInError as error:
        return _refused(request, error)
    # Browsers don't send the session cookie when another site redirects here. Continue from a page of this site
    # instead.
    response = page(request, "sign_in/leave.html", next=safe_next(signed_in.next))
    await start_session(request, response, user.principal, before=signed_in.session)
    _set_flow(request, response, "", timedelta(0))
    _log.info("dashboard_signed_in", actor=user.principal.actor)
    return response


def _provider(resources: Resources) -> OidcProvider:
    if resources.oidc is None:
        raise HTTPException(404, "No OpenID Connect provider is configured. Set GROUNDLANE_OIDC_ISSUER.")
    return resources.oidc


def _refused(request: Request, error: SignInError) -> Response:
    _log.warning("dashboard_sign_in_refused", detail=error.message)
    response = page(
        request, "layout/error.html", status=error.status, title="You aren't signed in", message=error.message
    )
    _set_flow(request, response, "", timedelta(0))
    return response


def _set_flow(request: Request, response: Response, value: str, lasts: timedelta) -> None:
    # Lax, so that browsers send the cookie when the provider redirects back.
    response.set_cookie(
        FLOW_COOKIE,
        value,
        max_age=int(lasts.total_seconds()),
        path=_COOKIE_PATH,
        secure=is_https(request.url.scheme, request.headers),
        httponly=True,
        samesite="lax",
    )
