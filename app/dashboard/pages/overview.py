"""``/dashboard/``: what the gateway does and has done, at a glance and as it happens."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from markupsafe import Markup
from pydantic import BaseModel, BeforeValidator
from sse_starlette.sse import EventSourceResponse

from app.analytics.service import Numbers, Statistics
from app.api.admin.common import Word
from app.dashboard import charts
from app.dashboard.charts import Part, Series
from app.dashboard.known_values import seen
from app.dashboard.live_feed import Tail
from app.dashboard.page_security import DashboardRoute
from app.dashboard.session import COOKIE, sessions_of
from app.dashboard.templating import duration, number, page
from app.dependencies import QueriesDep, ResourcesDep
from app.events.queries import EventFilter

router = APIRouter(route_class=DashboardRoute)

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_TAIL = 30
_NAMED = 12
"""Rows of the table; who looks for others can filter."""

_ACTIONS = (("allow", "Allowed"), ("warn", "Warned"), ("drop", "Dropped"), ("block", "Blocked"))
_VERDICTS = (
    ("supported", "Supported"),
    ("has_unverifiable", "Unverifiable"),
    ("has_contradictions", "Contradicted"),
    ("no_claims", "No claims"),
    ("no_sources", "No sources"),
    ("not_checked", "Not checked"),
)
_PARTS = (("upstream", "Upstream"), ("judge", "Judge"), ("gateway", "Gateway"))
Buckets = Sequence[tuple[datetime, Numbers]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """How far back to look: so many steps of so many seconds."""

    name: str
    steps: int
    step_s: int

    def start(self, now: datetime) -> datetime:
        """The begin of the first step; the last one is that of ``now``."""
        last = int(now.timestamp()) // self.step_s * self.step_s
        return datetime.fromtimestamp(last - (self.steps - 1) * self.step_s, UTC)


SPANS = {
    "hour": Span(name="Hour", steps=60, step_s=_MINUTE),
    "day": Span(name="Day", steps=24, step_s=_HOUR),
    "week": Span(name="Week", steps=28, step_s=6 * _HOUR),
    "month": Span(name="Month", steps=30, step_s=_DAY),
    "quarter": Span(name="90 days", steps=90, step_s=_DAY),
}

Chosen = Annotated[Word | None, BeforeValidator(lambda value: value or None)]
"""A form sends nothing for "any", which is an empty text."""


class Looked(BaseModel):
    """What is looked at. ``by``: whom the table is about."""

    span: Literal["hour", "day", "week", "month", "quarter"] = "day"
    by: Literal["agent", "model", "policy"] = "agent"
    agent: Chosen = None
    model: Chosen = None
    policy: Chosen = None

    def filter(self, since: datetime | None = None) -> EventFilter:
        return EventFilter(since=since, agent=self.agent, model=self.model, policy=self.policy)

    def url(self, path: str = "/dashboard/", **changes: str | None) -> str:
        """The address of a page at which this is looked at, but for ``changes``."""
        wanted = self.model_dump(exclude_defaults=True) | changes
        query = {name: value for name, value in wanted.items() if value is not None}
        return f"{path}?{urlencode(query)}" if query else path


@router.get("/")
async def show(
    request: Request, resources: ResourcesDep, queries: QueriesDep, looked: Annotated[Looked, Query()]
) -> Response:
    """Numbers of a span of time, and the newest decisions."""
    now, span = datetime.now(UTC), SPANS[looked.span]
    since = span.start(now)
    filter, statistics = looked.filter(since), Statistics(resources.database)
    totals, buckets, groups = await asyncio.gather(
        statistics.totals(filter),
        statistics.buckets(filter, span.step_s, since, now),
        statistics.groups(filter, looked.by, brief=True),
    )
    policies = {policy.id: policy.name for policy in await resources.policies.list(limit=1_000)}
    newest = await queries.events(looked.filter(), limit=_TAIL)
    return page(
        request,
        "overview.html",
        looked=looked,
        spans=SPANS,
        totals=totals,
        pace=_pace(totals.requests, (now - since).total_seconds()),
        charts=_charts(buckets, span),
        split=_split(totals),
        rows=[_row(key, numbers, looked, policies) for key, numbers in groups[:_NAMED]],
        agents=await seen(resources.database, "agent"),
        models=await seen(resources.database, "model"),
        policies=policies,
        readings=resources.metrics.readings(),
        newest=newest.items,
    )


@router.get("/live")
async def live(request: Request, resources: ResourcesDep, looked: Annotated[Looked, Query()]) -> EventSourceResponse:
    """The decisions that come from now on, one event each: a line of the page."""
    sessions, cookie = sessions_of(request), request.cookies.get(COOKIE, "")
    after = request.headers.get("last-event-id") or request.query_params.get("after")
    tail = Tail(resources.database, looked.filter(), after=after)
    return EventSourceResponse(tail.run(lambda: sessions.find(cookie)), headers={"Cache-Control": "no-store"})


def _pace(requests: int, seconds: float) -> str:
    """So many in a minute, an hour or a day, whichever makes a number that can be pictured."""
    for word, length in (("a minute", _MINUTE), ("an hour", _HOUR)):
        if (number := requests / max(seconds, 1) * length) >= 1:
            return f"{number:,.1f} {word}"
    return f"{requests / max(seconds, 1) * _DAY:,.1f} a day"


def _charts(buckets: Buckets, span: Span) -> list[Markup]:
    axis = charts.time_axis([start for start, _ in buckets], span.step_s)

    def series(named: Sequence[tuple[str, str]], value: Callable[[Numbers, str], float | None]) -> list[Series]:
        found = [
            Series(name=name, tone=key, values=[value(numbers, key) for _, numbers in buckets]) for key, name in named
        ]
        return [each for each in found if any(each.values)] or found[:1]

    trust = [Series(name="Mean", tone="accent", values=[numbers.trust_score for _, numbers in buckets])]
    return [
        charts.stacked("What became of requests", axis, series(_ACTIONS, lambda of, key: of.actions[key])),
        charts.stacked("What the documents said", axis, series(_VERDICTS, lambda of, key: of.verdicts[key])),
        charts.lines("Trust", axis, trust, show=number, top=1.0),
        charts.stacked("Where the time went, on average", axis, series(_PARTS, _mean), show=duration),
    ]


def _mean(numbers: Numbers, part: str) -> float | None:
    """Of all requests, also of those that had no such part: so the parts add up to the mean of the whole."""
    times = numbers.times.get(part)
    return times.sum_ms / numbers.requests if times is not None and numbers.requests else None


def _split(totals: Numbers) -> list[dict[str, Any]]:
    named = (*_PARTS, ("total", "Whole request"))
    return [
        {"key": key, "name": name, "mean": _mean(totals, key), **totals.latency_ms.get(key, {})} for key, name in named
    ]


def _row(key: str | None, numbers: Numbers, looked: Looked, policies: dict[str, str]) -> dict[str, Any]:
    parts = [
        Part(name=f"{name}: {numbers.actions[action]:,}", value=numbers.actions[action], tone=action)
        for action, name in _ACTIONS
    ]
    said = ", ".join(part.name for part in parts if part.value)
    return {
        "name": policies.get(key or "", key) if looked.by == "policy" else key,
        "url": None if key is None else looked.url(**{looked.by: key}),
        "numbers": numbers,
        "bar": charts.share_bar(parts, label=said or "nothing"),
    }
