"""All pages of the dashboard, in one place."""

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
async def no_slash() -> Response:
    return RedirectResponse("/dashboard/", status_code=308)


@_rest.api_route("/{path:path}", methods=["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
async def nothing(request: Request, path: str) -> None:
    if request.method == "GET":
        raise HTTPException(404, "There is no such page.")
    raise HTTPException(405, "Nothing can be changed here.")


@root.get("/")
async def from_the_root(request: Request) -> Response:
    """A person who opens the gateway's address is led to the dashboard; other clients are told that nothing is here."""
    if "text/html" not in request.headers.get("accept", ""):
        raise HTTPException(404)
    return RedirectResponse("/dashboard/", status_code=307)


PARTS = (
    sign_in.router,
    sign_in.signed_in,
    overview.router,
    requests.router,
    trace.router,
    policy_form.router,  # before the one whose paths may hold any id
    policies.router,
    calibration.router,
    playground.router,
    keys.router,
    system.router,
    _rest,  # last: it takes every path that no other takes
)
for part in PARTS:
    router.include_router(part)
