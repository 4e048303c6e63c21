"""``/admin/v1/events`` and ``/admin/v1/requests``: the event log."""

import csv
import io
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from app.api.admin.common import AdminRoute, CursorText, Word, decode_cursor, encode_cursor, page, utc
from app.dependencies import QueriesDep
from app.events.queries import EVENT_COLUMNS, REQUEST_COLUMNS, EventFilter, Key, Page
from policies.types import Action, Phase

router = APIRouter(route_class=AdminRoute, tags=["events"])

_CHUNK = 64 * 1024


def _plain_text(value: Any) -> Any:
    """A number would be read as seconds since 1970, which RFC 3339 knows nothing of."""
    if isinstance(value, str) and value.strip().lstrip("+-").replace(".", "", 1).isdecimal():
        raise ValueError("expected an RFC 3339 time")
    return value


Time = Annotated[AwareDatetime, BeforeValidator(_plain_text), AfterValidator(utc)]


class FilterParams(BaseModel):
    """``since`` is the earliest time, ``until`` the first that is too late, both RFC 3339; ``policy`` is an id."""

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
    limit: Annotated[int, Field(ge=1, le=500, description="Most items of one page")] = 50
    cursor: CursorText | None = None

    def after(self) -> Key | None:
        return None if self.cursor is None else decode_cursor(self.cursor, datetime, str)


class ExportParams(FilterParams):
    format: Literal["jsonl", "csv"] = "jsonl"


@router.get("/events")
async def list_events(queries: QueriesDep, params: Annotated[ListParams, Query()]) -> Response:
    """Decisions, newest first."""
    return _page(await queries.events(params.filter(), limit=params.limit, after=params.after()))


@router.get("/events/export")
async def export_events(queries: QueriesDep, params: Annotated[ExportParams, Query()]) -> Response:
    """All decisions that match, as a file."""
    return await _export("events", params, queries.all_events(params.filter()), EVENT_COLUMNS)


@router.get("/requests")
async def list_requests(queries: QueriesDep, params: Annotated[ListParams, Query()]) -> Response:
    """Requests, newest first."""
    return _page(await queries.requests(params.filter(), limit=params.limit, after=params.after()))


@router.get("/requests/export")
async def export_requests(queries: QueriesDep, params: Annotated[ExportParams, Query()]) -> Response:
    """All requests that match, as a file."""
    return await _export("requests", params, queries.all_requests(params.filter()), REQUEST_COLUMNS)


@router.get("/requests/{request_id}")
async def get_request(queries: QueriesDep, request_id: Annotated[Word, Path()]) -> Response:
    """The whole trace of a request: documents, decisions, and sentences with their verdicts and timings."""
    return _json(await queries.trace(request_id))


def _page(found: Page) -> Response:
    return _json(page(found.items, None if found.next is None else encode_cursor(*found.next)))


def _json(body: Any) -> Response:
    return Response(_dump(body), media_type="application/json")


def _dump(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_UTC_Z)


async def _export(
    name: str, params: ExportParams, rows: AsyncIterator[Mapping[str, Any]], columns: Iterable[Any]
) -> Response:
    # The first row before the status: a database that is away is then an error and not an empty file.
    first = await anext(rows, None)
    lines = _jsonl if params.format == "jsonl" else _csv
    return StreamingResponse(
        _chunks(lines(first, rows, [column.name for column in columns])),
        media_type="application/jsonl" if params.format == "jsonl" else "text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="groundlane-{name}.{params.format}"'},
    )


Row = Mapping[str, Any]


async def _jsonl(first: Row | None, rest: AsyncIterator[Row], _columns: list[str]) -> AsyncIterator[bytes]:
    if first is not None:
        yield _dump(first) + b"\n"
    async for row in rest:
        yield _dump(row) + b"\n"


async def _csv(first: Row | None, rest: AsyncIterator[Row], columns: list[str]) -> AsyncIterator[bytes]:
    yield _csv_line(columns)
    if first is not None:
        yield _csv_line(_cell(first[column]) for column in columns)
    async for row in rest:
        yield _csv_line(_cell(row[column]) for column in columns)


def _csv_line(cells: Iterable[Any]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().encode()


def _cell(value: Any) -> Any:
    match value:
        case str():
            # Agents and models are named by clients. A spreadsheet would run a text that begins so as a formula.
            return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
        case bool():
            return "true" if value else "false"
        case None | int() | float():
            return value
        case _:
            return _dump(value).decode().strip('"')


async def _chunks(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    buffer = bytearray()
    async for line in lines:
        buffer += line
        if len(buffer) >= _CHUNK:
            yield bytes(buffer)
            buffer.clear()
    if buffer:
        yield bytes(buffer)
