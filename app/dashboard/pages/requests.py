"""``/dashboard/requests``: the event log's requests, newest first, by whatever one looks for."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, BeforeValidator

from app.api.admin.common import CursorText, Word, decode_cursor, encode_cursor
from app.dashboard.known_values import seen
from app.dashboard.page_security import DashboardRoute
from app.dashboard.templating import page
from app.dependencies import QueriesDep, ResourcesDep
from app.events.queries import EventFilter, EventQueries, Page

router = APIRouter(route_class=DashboardRoute)

PATH = "/dashboard/requests"
_ROWS = 50
_SPANS = {
    "hour": ("The last hour", timedelta(hours=1)),
    "day": ("The last 24 hours", timedelta(days=1)),
    "week": ("The last 7 days", timedelta(days=7)),
    "month": ("The last 30 days", timedelta(days=30)),
}
_ACTIONS = {"allow": "Allowed", "warn": "Warned", "block": "Blocked"}


def _given(value: Any) -> Any:
    """A form sends an empty text for what was left open."""
    return value.strip() or None if isinstance(value, str) else value


def _time(value: Any) -> Any:
    """A time as a form's field for one gives it, without a zone: it is meant in UTC."""
    value = _given(value)
    if not isinstance(value, str):
        return value
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("not a time such as 2026-05-31T18:30") from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


Text = Annotated[Word | None, BeforeValidator(_given)]
Time = Annotated[datetime | None, BeforeValidator(_time)]


class Wanted(BaseModel):
    """What is looked for. ``since`` and ``until`` go before ``span``; ``id`` is the begin of one and goes before all
    else."""

    id: Text = None
    agent: Text = None
    model: Text = None
    policy: Text = None
    action: Annotated[Literal["allow", "warn", "block"] | None, BeforeValidator(_given)] = None
    code: Text = None
    run: Text = None
    span: Annotated[Literal["hour", "day", "week", "month"] | None, BeforeValidator(_given)] = None
    since: Time = None
    until: Time = None
    cursor: Annotated[CursorText | None, BeforeValidator(_given)] = None

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
        return any(getattr(self, name) is not None for name in Wanted.model_fields if name != "cursor")

    def url(self, **changes: str | None) -> str:
        """The address of the list as it is, but for ``changes``."""
        query = self.model_dump(mode="json", exclude_none=True) | changes
        query = {name: value for name, value in query.items() if value is not None}
        return f"{PATH}?{urlencode(query)}" if query else PATH


@router.get("/requests")
async def show(
    request: Request, resources: ResourcesDep, queries: QueriesDep, wanted: Annotated[Wanted, Query()]
) -> Response:
    """A page of requests; the one whose whole id is given is shown at once."""
    found = await _find(queries, wanted)
    if wanted.id and [row["request_id"] for row in found.items] == [wanted.id]:
        return RedirectResponse(f"{PATH}/{quote(wanted.id, safe='')}", status_code=303)
    policies = {policy.id: policy.name for policy in await resources.policies.list(limit=1_000)}
    return page(
        request,
        "requests.html",
        wanted=wanted,
        rows=found.items,
        newest=wanted.url(cursor=None) if wanted.cursor else None,
        older=None if found.next is None else wanted.url(cursor=encode_cursor(*found.next)),
        agents=await seen(resources.database, "agent"),
        models=await seen(resources.database, "model"),
        codes=await seen(resources.database, "reason_code"),
        policies=policies,
        actions=_ACTIONS,
        spans={key: name for key, (name, _) in _SPANS.items()},
    )


async def _find(queries: EventQueries, wanted: Wanted) -> Page:
    after = decode_cursor(wanted.cursor, datetime, str) if wanted.cursor else None
    if wanted.id:
        return await queries.requests_named(wanted.id, limit=_ROWS, after=after[1] if after else None)
    return await queries.requests(wanted.filter(datetime.now(UTC)), limit=_ROWS, after=after)
