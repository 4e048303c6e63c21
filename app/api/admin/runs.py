"""``/admin/v1/runs``: the runs of all gateway keys, and their steps."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from app.api.admin.common import AdminRoute, CursorText, decode_cursor, encode_cursor, page
from app.api.admin.events import Time
from app.api.admin.export import dump
from app.dependencies import ResourcesDep
from app.field_types import Word
from app.identity import Role, requires
from app.runs.repository import RunFilter
from app.runs.run_presentation import run_row_to_dict, run_trace_to_dict
from app.runs.run_queries import Key, RunQueries
from policies.types import Action

router = APIRouter(route_class=AdminRoute, tags=["runs"])
RunId = Annotated[Word, Path()]


class RunListParams(BaseModel):
    """``since`` (inclusive) and ``until`` (exclusive) limit the start time of runs. Both are RFC 3339 times. ``action``
    is the strictest action in the run so far."""

    model_config = ConfigDict(extra="forbid")

    since: Time | None = None
    until: Time | None = None
    agent: Word | None = None
    model: Word | None = None
    status: Literal["open", "completed"] | None = None
    action: Action | None = None
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of items")] = 50
    cursor: CursorText | None = None

    def filter(self) -> RunFilter:
        return RunFilter(**self.model_dump(include=set(RunFilter.__slots__)))

    def after(self) -> Key | None:
        return None if self.cursor is None else decode_cursor(self.cursor, datetime, str)


@router.get("/runs")
@requires(Role.VIEWER)
async def list_runs(resources: ResourcesDep, params: Annotated[RunListParams, Query()]) -> Response:
    """List runs, newest first."""
    found = await RunQueries(resources.database).page(params.filter(), limit=params.limit, after=params.after())
    cursor = None if found.next is None else encode_cursor(*found.next)
    return _json(page([run_row_to_dict(run) for run in found.runs], cursor))


@router.get("/runs/{run_id}")
@requires(Role.VIEWER)
async def show_run(resources: ResourcesDep, run_id: RunId) -> Response:
    """Get a run with its steps, records and decisions."""
    view = await RunQueries(resources.database).view(run_id, resources.settings.store_text)
    return _json(run_trace_to_dict(view))


def _json(body: Any) -> Response:
    return Response(dump(body), media_type="application/json")
