"""``/dashboard/requests``: lists the requests in the event log, with filters, counts, saved views and exports."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, quote, urlencode

from fastapi import APIRouter, Form, Path, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field, ValidationError

from app.analytics.request_facets import MOST_COUNTED, RequestFacets, request_facets
from app.api.admin.events import Status, decode_key, encode_key, order_of
from app.api.admin.export import Format, export
from app.api.admin.views import ViewDocument
from app.dashboard.error_messages import readable
from app.dashboard.known_values import distinct_values, known_keys
from app.dashboard.labels import ACTIONS, REPLY_VERDICTS, STATUSES
from app.dashboard.page_security import DashboardRoute
from app.dashboard.query_fields import NoneIfEmpty, OptionalCursor, OptionalNumber, OptionalTime, OptionalWord
from app.dashboard.request_columns import COLUMNS, COLUMNS_COOKIE, chosen_columns
from app.dashboard.session_cookie import set_cookie
from app.dashboard.templating import page
from app.dependencies import QueriesDep, ResourcesDep
from app.errors import InvalidAdminRequestError
from app.events.filters import EventFilter
from app.events.queries import REQUEST_COLUMNS
from app.events.request_pages import MOST_SEARCHED, MOST_SORTED
from app.events.search.saved_views import SavedView, SavedViews
from app.field_types import Word
from app.identity import Role, requires
from app.settings import StoreText
from judges.types import ReplyVerdict

router = APIRouter(route_class=DashboardRoute)

PATH = "/dashboard/requests"
_ROWS = 50
_ID_PREFIX = "req_"
_YEAR = timedelta(days=365)
_SPANS = {
    "hour": ("Last hour", timedelta(hours=1)),
    "day": ("Last 24 hours", timedelta(days=1)),
    "week": ("Last 7 days", timedelta(days=7)),
    "month": ("Last 30 days", timedelta(days=30)),
}
_ACTIONS = {action: ACTIONS[action].capitalize() for action in ("allow", "warn", "block")}
_VERDICTS = {verdict: name.capitalize() for verdict, name in REPLY_VERDICTS.items()}
_STATUSES = {status: name.capitalize() for status, name in STATUSES.items()}
_NOT_FILTERS = {"cursor", "sort", "columns"}


class RequestsQuery(BaseModel):
    """The page's filters, order and columns. ``since`` and ``until`` override ``span``. ``q`` is the beginning of a
    request id, or a search of the stored text. Trust values are percentages."""

    q: OptionalWord = None
    agent: OptionalWord = None
    model: OptionalWord = None
    policy: OptionalWord = None
    action: Annotated[Literal["allow", "warn", "block"] | None, NoneIfEmpty] = None
    verdict: Annotated[ReplyVerdict | None, NoneIfEmpty] = None
    status: Annotated[Status | None, NoneIfEmpty] = None
    key: OptionalWord = None
    code: OptionalWord = None
    run: OptionalWord = None
    span: Annotated[Literal["hour", "day", "week", "month"] | None, NoneIfEmpty] = None
    since: OptionalTime = None
    until: OptionalTime = None
    min_ms: Annotated[OptionalNumber, Field(ge=0)] = None
    max_ms: Annotated[OptionalNumber, Field(ge=0)] = None
    min_trust: Annotated[OptionalNumber, Field(ge=0, le=100)] = None
    max_trust: Annotated[OptionalNumber, Field(ge=0, le=100)] = None
    sort: Annotated[
        Literal["-time", "time", "-latency", "latency", "-trust", "trust", "-tokens", "tokens"] | None, NoneIfEmpty
    ] = None
    columns: list[Word] = []
    cursor: OptionalCursor = None

    def filter(self, now: datetime) -> EventFilter:
        recent = now - _SPANS[self.span][1] if self.span and not (self.since or self.until) else None
        return EventFilter(
            since=self.since or recent,
            until=self.until,
            agent=self.agent,
            model=self.model,
            policy=self.policy,
            action=self.action,
            verdict=self.verdict,
            status=self.status,
            key_prefix=self.key,
            reason_code=self.code,
            run_id=self.run,
            min_ms=self.min_ms,
            max_ms=self.max_ms,
            min_trust=None if self.min_trust is None else self.min_trust / 100,
            max_trust=None if self.max_trust is None else self.max_trust / 100,
            id_prefix=self.q if self.names_id else None,
            text=None if self.names_id else self.q,
        )

    @property
    def names_id(self) -> bool:
        return self.q is not None and self.q.startswith(_ID_PREFIX)

    @property
    def narrowed(self) -> bool:
        return any(getattr(self, name) is not None for name in RequestsQuery.model_fields if name not in _NOT_FILTERS)

    @property
    def further(self) -> bool:
        """Whether any filter that the form hides by default is set."""
        names = ("code", "min_ms", "max_ms", "min_trust", "max_trust", "since", "until")
        return any(getattr(self, name) is not None for name in names)

    def parameters(self, **changes: Any) -> dict[str, Any]:
        """Return this page's URL parameters after applying ``changes``. A parameter that changes to None is removed."""
        query = self.model_dump(mode="json", exclude_none=True) | changes
        return {name: value for name, value in query.items() if value is not None and value != []}

    def url(self, **changes: Any) -> str:
        """Return the list's URL with these parameters, after applying ``changes``."""
        query = self.parameters(**changes)
        return f"{PATH}?{urlencode(query, doseq=True)}" if query else PATH

    def narrowed_url(self, **changes: Any) -> str:
        """Return the URL of the list's first page with additional filters."""
        return self.url(cursor=None, **changes)

    def export_url(self, format: Format) -> str:
        """Return the URL for downloading all requests that match these filters."""
        query = self.parameters(**dict.fromkeys(_NOT_FILTERS))
        return f"{PATH}/export?{urlencode({**query, 'format': format}, doseq=True)}"


class ExportQuery(RequestsQuery):
    """The filters of an export."""

    format: Format = "csv"


@router.get("/requests/export")
@requires(Role.VIEWER)
async def export_requests(queries: QueriesDep, query: Annotated[ExportQuery, Query()]) -> Response:
    """Download all requests that match the filters, not just the current page."""
    rows = queries.all_requests(query.filter(datetime.now(UTC)))
    return await export("requests", query.format, rows, REQUEST_COLUMNS)


@router.post("/requests/views")
@requires(Role.EDITOR)
async def save_view(
    resources: ResourcesDep, name: Annotated[str, Form()] = "", query: Annotated[str, Form()] = ""
) -> Response:
    """Save the filters, order and columns of the page under a name."""
    try:
        wanted = RequestsQuery.model_validate(_from_url(query)).parameters(cursor=None)
        document = ViewDocument(name=name.strip(), query={key: _plain(value) for key, value in wanted.items()})
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidAdminRequestError(readable(first["msg"], str(first["loc"][0]))) from None
    await SavedViews(resources.database).create(document.name, document.query)
    return RedirectResponse(f"{PATH}?{urlencode(wanted, doseq=True)}" if wanted else PATH, status_code=303)


@router.post("/requests/views/{view_id}/delete")
@requires(Role.EDITOR)
async def delete_view(resources: ResourcesDep, view_id: Annotated[Word, Path()]) -> Response:
    await SavedViews(resources.database).delete(view_id)
    return RedirectResponse(PATH, status_code=303)


@router.get("/requests")
@requires(Role.VIEWER)
async def show(
    request: Request, resources: ResourcesDep, queries: QueriesDep, query: Annotated[RequestsQuery, Query()]
) -> Response:
    """Show a page of requests. If ``q`` is a complete request id, redirect to that request."""
    filter, order = query.filter(datetime.now(UTC)), order_of(query.sort or "-time")
    after = decode_key(query.cursor, order) if query.cursor else None
    found = await queries.requests(filter, limit=_ROWS, after=after, order=order)
    if query.names_id and [row["request_id"] for row in found.items] == [query.q]:
        return RedirectResponse(f"{PATH}/{quote(query.q or '', safe='')}", status_code=303)
    database = resources.database
    views = await SavedViews(database).list()
    facets = await request_facets(database, filter)
    prefixes = [query.key, *facets.named["key"].counts, *(row["key_prefix"] for row in found.items)]
    keys = await known_keys(database, prefixes)
    response = page(
        request,
        "requests/page.html",
        query=query,
        order=order,
        columns=chosen_columns(query.columns, request.cookies.get(COLUMNS_COOKIE)),
        all_columns=COLUMNS,
        exports={name: query.export_url(name) for name in ("csv", "jsonl")},
        rows=found.items,
        page_size=_ROWS,
        searched=MOST_SEARCHED if query.q and not query.names_id else None,
        most_sorted=MOST_SORTED,
        texts_stored=resources.settings.store_text is StoreText.FULL,
        first=query.url(cursor=None) if query.cursor else None,
        following=None if found.next is None else query.url(cursor=encode_key(found.next, order)),
        facets=facets,
        most_counted=MOST_COUNTED,
        facet_links=partial(_facet_links, keys),
        views=views,
        view_url=_view_url,
        current=_current(views, query),
        agents=await distinct_values(database, "agent"),
        models=await distinct_values(database, "model"),
        codes=await distinct_values(database, "reason_code"),
        keys=keys,
        policies={policy.id: policy.name for policy in await resources.policies.list(limit=1_000)},
        actions=_ACTIONS,
        verdicts=_VERDICTS,
        statuses=_STATUSES,
        spans={key: name for key, (name, _) in _SPANS.items()},
    )
    if query.columns:
        names = ".".join(name for name in query.columns if name in COLUMNS)
        set_cookie(request, response, COLUMNS_COOKIE, names, lasts=_YEAR)
    return response


def _facet_links(keys: Mapping[str, str], query: RequestsQuery, facets: RequestFacets) -> list[dict[str, Any]]:
    """Convert the facets to groups of links, each of which narrows the list further. ``keys`` has the names of keys by
    prefix."""
    names: Mapping[str, Mapping[str, str]] = {"verdict": _VERDICTS, "status": _STATUSES, "key": keys}
    found = [
        {
            "name": title,
            "complete": facets.named[name].complete,
            "links": [
                (names[name].get(value, value), count, query.narrowed_url(**{name: value}))
                for value, count in facets.named[name].counts.items()
            ],
        }
        for name, title in (("verdict", "Verdict"), ("status", "Status"), ("key", "Key"))
    ]
    # A filter's upper bound is inclusive, but a band's is exclusive, so the link's bound is slightly lower.
    for name, title, low, high, scale, below, unit in (
        ("latency_ms", "Latency", "min_ms", "max_ms", 1, 0.001, "s"),
        ("trust", "Trust", "min_trust", "max_trust", 100, 0.01, "%"),
    ):
        facet = facets.bands[name]
        shown = 0.001 if unit == "s" else 100
        links = [
            (
                _band(start, end, shown, unit),
                count,
                query.narrowed_url(**{low: _scaled(start, scale), high: _scaled(end, scale, below)}),
            )
            for (start, end), count in facet.counts.items()
            if count
        ]
        found.append({"name": title, "complete": facet.complete, "links": links})
    return [group for group in found if group["links"]]


def _scaled(bound: float | None, scale: float, less: float = 0) -> str | None:
    return None if bound is None else f"{bound * scale - less:.10g}"


def _band(low: float | None, high: float | None, scale: float, unit: str) -> str:
    space = "" if unit == "%" else " "
    if low is None:
        return f"below {high * scale if high else 0:g}{space}{unit}"
    if high is None:
        return f"from {low * scale:g}{space}{unit}"
    return f"{low * scale:g} to {high * scale:g}{space}{unit}"


def _from_url(query: str) -> dict[str, Any]:
    """Parse the query string of this page's URL."""
    parsed = parse_qs(query[:4_000], max_num_fields=100)
    return {name: values if name == "columns" else values[-1] for name, values in parsed.items()}


def _plain(value: Any) -> str | list[str]:
    return [str(each) for each in value] if isinstance(value, list) else str(value)


def _view_url(view: SavedView) -> str:
    return f"{PATH}?{urlencode(view.query, doseq=True)}" if view.query else PATH


def _current(views: Sequence[SavedView], query: RequestsQuery) -> SavedView | None:
    """Return the saved view that matches the page's parameters, if any."""
    shown = {name: _plain(value) for name, value in query.parameters(cursor=None).items()}
    return next((view for view in views if dict(view.query) == shown), None)
