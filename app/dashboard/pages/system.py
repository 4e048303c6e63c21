"""``/dashboard/system``: health, workers, upstreams, queues and the audit log."""

from datetime import datetime
from importlib.metadata import version
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from app.api.admin.common import CursorText, decode_cursor, encode_cursor
from app.api.health import check_health, readiness
from app.auth.audit_log import AuditFilter, entries
from app.dashboard.page_security import DashboardRoute
from app.dashboard.query_fields import OptionalWord
from app.dashboard.templating import page
from app.dependencies import ResourcesDep
from app.identity import Role, requires
from app.resources import Resources
from app.worker_sync.worker_heartbeat import LiveWorker, live_workers

router = APIRouter(route_class=DashboardRoute)
_PAGE = 25


class AuditQuery(BaseModel):
    """Filters of the audit log."""

    actor: OptionalWord = None
    action: OptionalWord = None
    target: OptionalWord = None
    cursor: CursorText | None = None

    def url(self, **changes: str | None) -> str:
        query = self.model_dump(exclude_none=True) | changes
        return "/dashboard/system?" + urlencode({name: value for name, value in query.items() if value is not None})


@router.get("/system")
@requires(Role.VIEWER)
async def show(request: Request, resources: ResourcesDep, query: Annotated[AuditQuery, Query()]) -> Response:
    checks = await check_health(resources)
    workers = await live_workers(resources.database)
    newest = {policy.id: policy.version for policy in await resources.policies.list(limit=1_000)}
    lines, older = await _audit(resources, query)
    return page(
        request,
        "system/page.html",
        status_word=readiness(checks),
        checks=checks,
        workers=[_worker(worker, newest) for worker in workers],
        upstreams=resources.upstream.describe(),
        readings=resources.metrics.readings(),
        settings=resources.settings,
        version=version("groundlane"),
        query=query,
        lines=lines,
        older=older,
        newest=query.url(cursor=None) if query.cursor else None,
    )


async def _audit(resources: Resources, query: AuditQuery) -> tuple[list[dict[str, Any]], str | None]:
    """Return a page of the audit log and the URL of the next page."""
    after = None if query.cursor is None else decode_cursor(query.cursor, datetime, str)
    filter = AuditFilter(actor=query.actor, action=query.action, target=query.target)
    found = await entries(resources.database, filter, limit=_PAGE + 1, after=(after[0], after[1]) if after else None)
    lines = [line | {"changed": _changed(line["before"], line["after"])} for line in found[:_PAGE]]
    more = len(found) > _PAGE
    return lines, query.url(cursor=encode_cursor(lines[-1]["ts"], lines[-1]["id"])) if more else None


def _changed(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[tuple[str, Any, Any]]:
    """Return the changed fields with their values before and after the change. A value is None if the field was
    absent."""
    old, new = before or {}, after or {}
    return [(name, old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)]


def _worker(worker: LiveWorker, newest: dict[str, int]) -> dict[str, Any]:
    """Describe a worker. ``current`` means that the worker has loaded the newest version of every policy and no deleted
    policies."""
    return {"of": worker, "current": dict(worker.versions) == newest}
