"""The router for the whole dashboard."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from app.dashboard.access import budgets, oidc, sessions, tokens
from app.dashboard.page_security import DashboardRoute, OpenRoute
from app.dashboard.pages import (
    alerts,
    api_reference,
    calibration,
    keys,
    overview,
    playground,
    policies,
    policy_form,
    requests,
    review,
    runs,
    sign_in,
    system,
    trace,
)
from app.identity import Role, requires

router = APIRouter(prefix="/dashboard", route_class=OpenRoute, include_in_schema=False)
root = APIRouter(include_in_schema=False)
_rest = APIRouter(route_class=DashboardRoute)


# Trailing slashes are removed before routing, so both forms match.
router.add_api_route("", overview.show, route_class_override=DashboardRoute)


@_rest.api_route("/{path:path}", methods=["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
@requires(Role.VIEWER)
async def not_found(request: Request, path: str) -> None:
    if request.method == "GET":
        raise HTTPException(404, "Page not found.")
    raise HTTPException(405, f"{request.method} is not allowed for this page.")


@root.get("/")
async def redirect_from_root() -> Response:
    """Redirect from the gateway's root URL to the dashboard."""
    return RedirectResponse("/dashboard/", status_code=307)


root.include_router(api_reference.router)


PARTS = (
    sign_in.router,
    oidc.router,
    sign_in.signed_in,
    overview.router,
    requests.router,
    trace.router,
    trace.shared,
    runs.router,
    policy_form.router,  # Must come before policies, because /policies/{policy_id} also matches /policies/new.
    policies.router,
    calibration.router,
    alerts.router,
    review.router,
    playground.router,
    keys.router,
    budgets.router,
    tokens.router,
    sessions.router,
    system.router,
    _rest,  # Must be last, because it matches every path.
)
for part in PARTS:
    router.include_router(part)
