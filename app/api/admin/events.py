"""``/admin/v1/events``, ``/admin/v1/requests`` and ``/admin/v1/claims``: the event log."""

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Path, Query, Response
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from app.analytics.request_facets import request_facets
from app.api.admin.common import AdminRoute, CursorText, decode_cursor, encode_cursor, invalid_cursor, page, utc
from app.api.admin.export import Format, dump, export
from app.dependencies import PoliciesDep, QueriesDep, ResourcesDep
from app.events.filters import EventFilter, Key, Order, SortColumn
from app.events.queries import CLAIM_COLUMNS, EVENT_COLUMNS, REQUEST_COLUMNS
from app.events.request_pages import Page
from app.field_types import Word
from app.identity import Role, requires
from app.policy_admin.policy_store import PolicyStore
from app.settings import StoreText
from judges.types import ReplyVerdict
from policies.types import Action, Phase

router = APIRouter(route_class=AdminRoute, tags=["events"])


def _plain_text(value: Any) -> Any:
    """Reject numbers, which Pydantic would read as Unix time."""
    if isinstance(value, str) and value.strip().lstrip("+-").replace(".", "", 1).isdecimal():
        raise ValueError("expected an RFC 3339 time")
    return value


_LARGEST = 2**62
Status = Literal["completed", "blocked", "cancelled", "incomplete", "upstream_error", "failed"]
Time = Annotated[AwareDatetime, BeforeValidator(_plain_text), AfterValidator(utc)]


class FilterParams(BaseModel):
    """``since`` is inclusive and ``until`` exclusive. Both are RFC 3339 times. ``policy`` is an id or a name."""

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

    async def filter(self, policies: PolicyStore) -> EventFilter:
        values = {name: getattr(self, name) for name in FilterParams.model_fields}
        if self.policy is not None:
            values["policy"] = await policies.id_of(self.policy)
        return EventFilter(**values)


class RequestFilterParams(FilterParams):
    """``q`` searches the stored text for words, ``"phrases"`` and ``prefix*``. A request matches if it contains all of
    them. ``key`` is the prefix of a gateway key. Latencies are in milliseconds. Bounds are inclusive."""

    verdict: ReplyVerdict | None = None
    status: Status | None = None
    key: Word | None = None
    min_ms: Annotated[float | None, Field(ge=0)] = None
    max_ms: Annotated[float | None, Field(ge=0)] = None
    min_trust: Annotated[float | None, Field(ge=0, le=1)] = None
    max_trust: Annotated[float | None, Field(ge=0, le=1)] = None
    q: Word | None = None

    async def filter(self, policies: PolicyStore) -> EventFilter:
        own = {
            name: getattr(self, name) for name in ("verdict", "status", "min_ms", "max_ms", "min_trust", "max_trust")
        }
        return replace(await super().filter(policies), key_prefix=self.key, text=self.q, **own)


class PageParams(BaseModel):
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of items")] = 50
    cursor: CursorText | None = None


class ListParams(FilterParams, PageParams):
    def after(self) -> Key | None:
        return None if self.cursor is None else decode_cursor(self.cursor, datetime, str)


class RequestListParams(RequestFilterParams, PageParams):
    """``sort`` is a column. Prefix it with ``-`` for descending order."""

    sort: Literal["-time", "time", "-latency", "latency", "-trust", "trust", "-tokens", "tokens"] = "-time"

    @property
    def order(self) -> Order:
        return order_of(self.sort)

    def after(self) -> Key | None:
        return None if self.cursor is None else decode_key(self.cursor, self.order)


class ExportParams(FilterParams):
    format: Format = "jsonl"


class RequestExportParams(RequestFilterParams):
    format: Format = "jsonl"


def order_of(sort: str) -> Order:
    """Parse ``sort``, such as ``-latency``."""
    return Order(cast(SortColumn, sort.removeprefix("-")), descending=sort.startswith("-"))


def encode_key(key: Key, order: Order) -> str:
    """Return the cursor for the rows after ``key`` in ``order``."""
    value, id = key
    return encode_cursor(value, id) if order.column == "time" else encode_cursor(order.column, value, id)


def decode_key(cursor: str, order: Order) -> Key:
    """Return the key in ``cursor``, for a list in ``order``. Raises InvalidAdminRequestError."""
    if order.column == "time":
        return cast(Key, decode_cursor(cursor, datetime, str))
    number = int if order.column == "tokens" else float
    column, value, id = decode_cursor(cursor, str, number | None, str)
    if column != order.column or (value is not None and abs(value) > _LARGEST):
        raise invalid_cursor()
    return value, id


@router.get("/events")
@requires(Role.VIEWER)
async def list_events(queries: QueriesDep, policies: PoliciesDep, params: Annotated[ListParams, Query()]) -> Response:
    """List decisions, newest first."""
    return _page(await queries.events(await params.filter(policies), limit=params.limit, after=params.after()))


@router.get("/events/export")
@requires(Role.VIEWER)
async def export_events(
    queries: QueriesDep, policies: PoliciesDep, params: Annotated[ExportParams, Query()]
) -> Response:
    """Download all matching decisions."""
    return await export("events", params.format, queries.all_events(await params.filter(policies)), EVENT_COLUMNS)


@router.get("/requests")
@requires(Role.VIEWER)
async def list_requests(
    queries: QueriesDep, policies: PoliciesDep, resources: ResourcesDep, params: Annotated[RequestListParams, Query()]
) -> Response:
    """List requests, newest first or in the order given by ``sort``.

    The gateway limits how much it reads for each page: up to 5,000 matches of ``q`` or, if no index covers the other
    filters, about 20,000 requests. Therefore, a page can have fewer items than ``limit``, or none, and still have a
    ``next_cursor``. With ``q`` and an order other than ``-time``, only the newest 5,000 matches are sorted.
    ``search.texts_stored`` says whether the text of new requests is stored. ``q`` finds only stored text.
    """
    filter, order = await params.filter(policies), params.order
    found = await queries.requests(filter, limit=params.limit, after=params.after(), order=order)
    body = page(found.items, None if found.next is None else encode_key(found.next, order))
    if params.q is not None:
        body["search"] = {"texts_stored": resources.settings.store_text is StoreText.FULL}
    return _json(body)


@router.get("/requests/facets")
@requires(Role.VIEWER)
async def count_facets(
    resources: ResourcesDep, policies: PoliciesDep, params: Annotated[RequestFilterParams, Query()]
) -> Response:
    """Count the matching requests by action, verdict, status, gateway key, latency and trust.

    A facet is ``complete`` if all matching requests were counted. Otherwise, it covers only the newest requests.
    """
    return _json((await request_facets(resources.database, await params.filter(policies))).to_dict())


@router.get("/requests/export")
@requires(Role.VIEWER)
async def export_requests(
    queries: QueriesDep, policies: PoliciesDep, params: Annotated[RequestExportParams, Query()]
) -> Response:
    """Download all matching requests."""
    return await export("requests", params.format, queries.all_requests(await params.filter(policies)), REQUEST_COLUMNS)


@router.get("/claims/export")
@requires(Role.VIEWER)
async def export_claims(
    queries: QueriesDep, policies: PoliciesDep, params: Annotated[RequestExportParams, Query()]
) -> Response:
    """Download the claims of all matching requests."""
    return await export("claims", params.format, queries.all_claims(await params.filter(policies)), CLAIM_COLUMNS)


@router.get("/requests/{request_id}")
@requires(Role.VIEWER)
async def get_request(queries: QueriesDep, request_id: Annotated[Word, Path()]) -> Response:
    """Get the trace of a request: its documents and decisions, and its sentences with their verdicts and timings."""
    return _json(await queries.trace(request_id))


def _page(found: Page) -> Response:
    return _json(page(found.items, None if found.next is None else encode_cursor(*found.next)))


def _json(body: Any) -> Response:
    return Response(dump(body), media_type="application/json")
