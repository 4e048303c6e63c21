"""``/dashboard/system``: whether everything works, who serves, where requests go, and who changed what."""

from datetime import datetime
from importlib.metadata import version
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, BeforeValidator

from app.api.admin.common import CursorText, Word, decode_cursor, encode_cursor
from app.api.health import look, readiness
from app.auth.audit_log import AuditFilter, entries
from app.dashboard.page_security import DashboardRoute
from app.dashboard.templating import page
from app.dependencies import ResourcesDep
from app.resources import Resources
from app.worker_sync.registry import Worker, live_workers

router = APIRouter(route_class=DashboardRoute)
_PAGE = 25
Chosen = Annotated[Word | None, BeforeValidator(lambda value: value or None)]


class Wanted(BaseModel):
    """Which lines of the audit trail."""

    actor: Chosen = None
    action: Chosen = None
    target: Chosen = None
    cursor: CursorText | None = None

    def url(self, **changes: str | None) -> str:
        wanted = self.model_dump(exclude_none=True) | changes
        return "/dashboard/system?" + urlencode({name: value for name, value in wanted.items() if value is not None})


@router.get("/system")
async def show(request: Request, resources: ResourcesDep, wanted: Annotated[Wanted, Query()]) -> Response:
    checks = await look(resources)
    workers = await live_workers(resources.database)
    newest = {policy.id: policy.version for policy in await resources.policies.list(limit=1_000)}
    lines, older = await _audit(resources, wanted)
    return page(
        request,
        "system.html",
        status_word=readiness(checks),
        checks=checks,
        workers=[_worker(worker, newest) for worker in workers],
        upstreams=resources.upstream.describe(),
        readings=resources.metrics.readings(),
        settings=resources.settings,
        version=version("groundlane"),
        wanted=wanted,
        lines=lines,
        older=older,
        newest=wanted.url(cursor=None) if wanted.cursor else None,
    )


async def _audit(resources: Resources, wanted: Wanted) -> tuple[list[dict[str, Any]], str | None]:
    """A page of the trail, and the address of the next one."""
    after = None if wanted.cursor is None else decode_cursor(wanted.cursor, datetime, str)
    filter = AuditFilter(actor=wanted.actor, action=wanted.action, target=wanted.target)
    found = await entries(resources.database, filter, limit=_PAGE + 1, after=(after[0], after[1]) if after else None)
    lines = [line | {"changed": _changed(line["before"], line["after"])} for line in found[:_PAGE]]
    more = len(found) > _PAGE
    return lines, wanted.url(cursor=encode_cursor(lines[-1]["ts"], lines[-1]["id"])) if more else None


def _changed(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[tuple[str, Any, Any]]:
    """What of a thing is another than it was: its fields with their values before and after; None: it was not there."""
    old, new = before or {}, after or {}
    return [(name, old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)]


def _worker(worker: Worker, newest: dict[str, int]) -> dict[str, Any]:
    """``current``: it has loaded every policy in its newest version, and none that is no more."""
    return {"of": worker, "current": dict(worker.versions) == newest}
