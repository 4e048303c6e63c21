"""``/admin/v1/audit``: the audit log."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from app.api.admin.common import AdminRoute, CursorText, decode_cursor, encode_cursor, page
from app.api.admin.events import Time
from app.auth.audit_log import AuditFilter, entries
from app.dependencies import ResourcesDep
from app.field_types import Word
from app.identity import Role, requires

router = APIRouter(prefix="/audit", route_class=AdminRoute, tags=["audit"])


class AuditParams(BaseModel):
    """``since`` is inclusive and ``until`` exclusive. Both are RFC 3339 times."""

    model_config = ConfigDict(extra="forbid")

    since: Time | None = None
    until: Time | None = None
    actor: Word | None = None
    action: Word | None = None
    target: Word | None = None
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of items")] = 50
    cursor: CursorText | None = None


@router.get("")
@requires(Role.VIEWER)
async def list_audit(resources: ResourcesDep, params: Annotated[AuditParams, Query()]) -> dict[str, Any]:
    """List changes, newest first. Each has its actor and the values before and after the change."""
    after = None if params.cursor is None else decode_cursor(params.cursor, datetime, str)
    wanted = AuditFilter(**params.model_dump(exclude={"limit", "cursor"}))
    found = await entries(resources.database, wanted, limit=params.limit + 1, after=after)
    items = found[: params.limit]
    more = len(found) > params.limit
    return page(items, encode_cursor(items[-1]["ts"], items[-1]["id"]) if more else None)
