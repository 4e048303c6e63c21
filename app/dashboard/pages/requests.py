"""``/dashboard/requests``."""

from fastapi import APIRouter, Request, Response

from app.dashboard.guard import DashboardRoute
from app.dashboard.view import page

router = APIRouter(route_class=DashboardRoute)


@router.get("/requests")
async def show(request: Request) -> Response:
    return page(request, "requests.html")
