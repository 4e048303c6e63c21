"""``/admin/v1/upstreams``."""

from typing import Any

from fastapi import APIRouter

from app.api.admin.common import AdminRoute, page
from app.dependencies import ResourcesDep

router = APIRouter(prefix="/upstreams", route_class=AdminRoute, tags=["upstreams"])


@router.get("")
async def list_upstreams(resources: ResourcesDep) -> dict[str, Any]:
    """The upstreams in routing order, without secrets, each with its health as seen by the responding worker."""
    return page(resources.upstream.describe(), None)
