"""``/admin/v1/events``, ``/admin/v1/requests`` and ``/admin/v1/claims``: the event log."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from app.api.admin.common import AdminRoute, CursorText, Word, decode_cursor, encode_cursor, page, utc
from app.api.admin.export import Format, dump, export
from app.dependencies import QueriesDep
from app.events.queries import CLAIM_COLUMNS, EVENT_COLUMNS, REQUEST_COLUMNS, EventFilter, Key, Page
from policies.types import Action, Phase

router = APIRouter(route_class=AdminRoute, tags=["events"])


def _plain_text(value: Any) -> Any:
    """Rejects numbers, which would be read as Unix time."""
    if isinstance(value, str) and value.strip().lstrip("+-").replace(".", "", 1).isdecimal():
        raise ValueError("expected an RFC 3339 time")
    return value


Time = Annotated[AwareDatetime, BeforeValidator(_plain_text), AfterValidator(utc)]


class FilterParams(BaseModel):
    """``since`` is inclusive, ``until`` exclusive, both RFC 3339; ``policy`` is an id."""

    model_config = ConfigDict(extra="forbid")

    since: Time | None = None
    until: Time | None = None
    agent: Word | None = None
    model: Word | None = None
    run_id: Word | None = None
    action: Action | None = None
    policy: Word | None = None
    phase: Phase | None = None
    reason_code: Word | None = None
    shadow: bool | None = None

    def filter(self) -> EventFilter:
        values = {name: getattr(self, name) for name in FilterParams.model_fields}
        return EventFilter(**values)


class ListParams(FilterParams):
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of items")] = 50
    cursor: CursorText | None = None

    def after(self) -> Key | None:
        return None if self.cursor is None else decode_cursor(self.cursor, datetime, str)


class ExportParams(FilterParams):
    format: Format = "jsonl"


@router.get("/events")
async def list_events(queries: QueriesDep, params: Annotated[ListParams, Query()]) -> Response:
    """Decisions, newest first."""
    return _page(await queries.events(params.filter(), limit=params.limit, after=params.after()))


@router.get("/events/export")
async def export_events(queries: QueriesDep, params: Annotated[ExportParams, Query()]) -> Response:
    """All matching decisions, as a file."""
    return await export("events", params.format, queries.all_events(params.filter()), EVENT_COLUMNS)


@router.get("/requests")
async def list_requests(queries: QueriesDep, params: Annotated[ListParams, Query()]) -> Response:
    """Requests, newest first."""
    return _page(await queries.requests(params.filter(), limit=params.limit, after=params.after()))


@router.get("/requests/export")
async def export_requests(queries: QueriesDep, params: Annotated[ExportParams, Query()]) -> Response:
    """All matching requests, as a file."""
    return await export("requests", params.format, queries.all_requests(params.filter()), REQUEST_COLUMNS)


@router.get("/claims/export")
async def export_claims(queries: QueriesDep, params: Annotated[ExportParams, Query()]) -> Response:
    """The claims of all matching requests, as a file."""
    return await export("claims", params.format, queries.all_claims(params.filter()), CLAIM_COLUMNS)


@router.get("/requests/{request_id}")
async def get_request(queries: QueriesDep, request_id: Annotated[Word, Path()]) -> Response:
    """The trace of a request: documents, decisions, and sentences with their verdicts and timings."""
    return _json(await queries.trace(request_id))


def _page(found: Page) -> Response:
    return _json(page(found.items, None if found.next is None else encode_cursor(*found.next)))


def _json(body: Any) -> Response:
    return Response(dump(body), media_type="application/json")
