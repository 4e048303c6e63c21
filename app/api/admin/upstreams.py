"""``/admin/v1/upstreams``."""

from typing import Any

from fastapi import APIRouter

from app.api.admin.common import AdminRoute, page
from app.dependencies import ResourcesDep
from app.identity import Role, requires

router = APIRouter(prefix="/upstreams", route_class=AdminRoute, tags=["upstreams"])


@router.get("")
@requires(Role.VIEWER)
async def list_upstreams(resources: ResourcesDep) -> dict[str, Any]:
    """List the upstreams in routing order, without their secrets. Each item includes the upstream's health, as seen by
    the worker that handles this request."""
    return page(resources.upstream.describe(), None)
