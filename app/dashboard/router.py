"""The router for the whole dashboard."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from app.dashboard.page_security import DashboardRoute, OpenRoute
from app.dashboard.pages import (
    calibration,
    keys,
    overview,
    playground,
    policies,
    policy_form,
    requests,
    sign_in,
    system,
    trace,
)

router = APIRouter(prefix="/dashboard", route_class=OpenRoute, include_in_schema=False)
root = APIRouter(include_in_schema=False)
_rest = APIRouter(route_class=DashboardRoute)


@router.get("")
async def redirect_to_slash() -> Response:
    return RedirectResponse("/dashboard/", status_code=308)


@_rest.api_route("/{path:path}", methods=["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
async def not_found(request: Request, path: str) -> None:
    if request.method == "GET":
        raise HTTPException(404, "Page not found.")
    raise HTTPException(405, f"{request.method} is not allowed here.")


@root.get("/")
async def redirect_from_root(request: Request) -> Response:
    """Send browsers that open the gateway's address to the dashboard; other clients get a 404."""
    if "text/html" not in request.headers.get("accept", ""):
        raise HTTPException(404)
    return RedirectResponse("/dashboard/", status_code=307)


PARTS = (
    sign_in.router,
    sign_in.signed_in,
    overview.router,
    requests.router,
    trace.router,
    policy_form.router,  # Before policies, whose /policies/{policy_id} would match /policies/new.
    policies.router,
    calibration.router,
    playground.router,
    keys.router,
    system.router,
    _rest,  # Last, because it matches every path.
)
for part in PARTS:
    router.include_router(part)
