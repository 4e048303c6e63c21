"""``/dashboard/requests``: the requests in the event log, newest first, with filters."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel

from app.api.admin.common import decode_cursor, encode_cursor
from app.dashboard.known_values import distinct_values
from app.dashboard.labels import ACTIONS
from app.dashboard.page_security import DashboardRoute
from app.dashboard.query_fields import NoneIfEmpty, OptionalCursor, OptionalTime, OptionalWord
from app.dashboard.templating import page
from app.dependencies import QueriesDep, ResourcesDep
from app.events.queries import EventFilter, EventQueries, Page

router = APIRouter(route_class=DashboardRoute)

PATH = "/dashboard/requests"
_ROWS = 50
_SPANS = {
    "hour": ("Last hour", timedelta(hours=1)),
    "day": ("Last 24 hours", timedelta(days=1)),
    "week": ("Last 7 days", timedelta(days=7)),
    "month": ("Last 30 days", timedelta(days=30)),
}
_ACTIONS = {action: ACTIONS[action].capitalize() for action in ("allow", "warn", "block")}


class RequestsQuery(BaseModel):
    """The page's filters. ``since`` and ``until`` override ``span``; ``id``, the beginning of a request id, overrides
    all others."""

    id: OptionalWord = None
    agent: OptionalWord = None
    model: OptionalWord = None
    policy: OptionalWord = None
    action: Annotated[Literal["allow", "warn", "block"] | None, NoneIfEmpty] = None
    code: OptionalWord = None
    run: OptionalWord = None
    span: Annotated[Literal["hour", "day", "week", "month"] | None, NoneIfEmpty] = None
    since: OptionalTime = None
    until: OptionalTime = None
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
            reason_code=self.code,
            run_id=self.run,
        )

    @property
    def narrowed(self) -> bool:
        return any(getattr(self, name) is not None for name in RequestsQuery.model_fields if name != "cursor")

    def url(self, **changes: str | None) -> str:
        """The URL of the list with these filters, except for ``changes``."""
        query = self.model_dump(mode="json", exclude_none=True) | changes
        query = {name: value for name, value in query.items() if value is not None}
        return f"{PATH}?{urlencode(query)}" if query else PATH


@router.get("/requests")
async def show(
    request: Request, resources: ResourcesDep, queries: QueriesDep, query: Annotated[RequestsQuery, Query()]
) -> Response:
    """A page of requests. A complete request id redirects to that request."""
    found = await _find(queries, query)
    if query.id and [row["request_id"] for row in found.items] == [query.id]:
        return RedirectResponse(f"{PATH}/{quote(query.id, safe='')}", status_code=303)
    policies = {policy.id: policy.name for policy in await resources.policies.list(limit=1_000)}
    return page(
        request,
        "requests/page.html",
        query=query,
        rows=found.items,
        newest=query.url(cursor=None) if query.cursor else None,
        older=None if found.next is None else query.url(cursor=encode_cursor(*found.next)),
        agents=await distinct_values(resources.database, "agent"),
        models=await distinct_values(resources.database, "model"),
        codes=await distinct_values(resources.database, "reason_code"),
        policies=policies,
        actions=_ACTIONS,
        spans={key: name for key, (name, _) in _SPANS.items()},
    )


async def _find(queries: EventQueries, query: RequestsQuery) -> Page:
    after = decode_cursor(query.cursor, datetime, str) if query.cursor else None
    if query.id:
        return await queries.requests_named(query.id, limit=_ROWS, after=after[1] if after else None)
    return await queries.requests(query.filter(datetime.now(UTC)), limit=_ROWS, after=after)
