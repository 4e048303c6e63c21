"""``/dashboard/runs``: lists agent runs, newest first, and shows the steps of a run."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel

from app.api.admin.common import decode_cursor, encode_cursor
from app.api.admin.export import dump
from app.dashboard.known_values import distinct_values
from app.dashboard.labels import ACTIONS
from app.dashboard.page_security import DashboardRoute
from app.dashboard.query_fields import NoneIfEmpty, OptionalCursor, OptionalTime, OptionalWord
from app.dashboard.templating import page
from app.dependencies import ResourcesDep
from app.field_types import Word
from app.identity import Role, requires
from app.runs.repository import RunFilter
from app.runs.run_presentation import run_trace_to_dict
from app.runs.run_queries import RunQueries

router = APIRouter(route_class=DashboardRoute)

PATH = "/dashboard/runs"
_ROWS = 50
_MOST_STEPS = 200
_ACTIONS = {action: ACTIONS[action].capitalize() for action in ("allow", "warn", "block")}
_STATUSES = {"open": "Open", "completed": "Completed"}
_KINDS = {
    "start": "Started",
    "retrieval": "Document recorded",
    "grounding": "Grounding reported",
    "call": "Request to the model",
    "complete": "Completed",
}

RunId = Annotated[Word, Path()]


class RunsQuery(BaseModel):
    """The page's filters. ``since`` and ``until`` limit the start time of a run."""

    agent: OptionalWord = None
    model: OptionalWord = None
    status: Annotated[Literal["open", "completed"] | None, NoneIfEmpty] = None
    action: Annotated[Literal["allow", "warn", "block"] | None, NoneIfEmpty] = None
    since: OptionalTime = None
    until: OptionalTime = None
    cursor: OptionalCursor = None

    def filter(self) -> RunFilter:
        return RunFilter(**self.model_dump(exclude={"cursor"}))

    @property
    def narrowed(self) -> bool:
        return any(value is not None for value in self.model_dump(exclude={"cursor"}).values())

    def url(self, cursor: str | None) -> str:
        """Return the list's URL with these filters."""
        query = self.model_dump(mode="json", exclude_none=True, exclude={"cursor"})
        query |= {} if cursor is None else {"cursor": cursor}
        return f"{PATH}?{urlencode(query)}" if query else PATH


@router.get("/runs")
@requires(Role.VIEWER)
async def show(request: Request, resources: ResourcesDep, query: Annotated[RunsQuery, Query()]) -> Response:
    """Show a page of runs."""
    after = decode_cursor(query.cursor, datetime, str) if query.cursor else None
    found = await RunQueries(resources.database).page(query.filter(), limit=_ROWS, after=after)
    return page(
        request,
        "runs/list.html",
        query=query,
        runs=found.runs,
        newest=query.url(None) if query.cursor else None,
        older=None if found.next is None else query.url(encode_cursor(*found.next)),
        agents=await distinct_values(resources.database, "agent"),
        models=await distinct_values(resources.database, "model"),
        actions=_ACTIONS,
        statuses=_STATUSES,
    )


@router.get("/runs/{run_id}")
@requires(Role.VIEWER)
async def show_run(request: Request, resources: ResourcesDep, run_id: RunId) -> Response:
    """Show a run with its steps."""
    run = await _run(resources, run_id)
    steps = run["steps"]
    return page(
        request, "runs/detail.html", run=run, steps=steps[:_MOST_STEPS], cut=len(steps[_MOST_STEPS:]), kinds=_KINDS
    )


@router.get("/runs/{run_id}/run.json")
@requires(Role.VIEWER)
async def export_run(resources: ResourcesDep, run_id: RunId) -> Response:
    """Download the run, as returned by ``GET /admin/v1/runs/{id}``."""
    run = await _run(resources, run_id)
    disposition = {"Content-Disposition": f'attachment; filename="{run["run_id"]}.json"'}
    return Response(dump(run), media_type="application/json", headers=disposition)


async def _run(resources: ResourcesDep, run_id: str) -> Mapping[str, Any]:
    return run_trace_to_dict(await RunQueries(resources.database).view(run_id, resources.settings.store_text))
