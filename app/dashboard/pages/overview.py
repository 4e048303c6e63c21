"""``/dashboard/``: statistics for a time range, and the live feed of decisions."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from markupsafe import Markup
from pydantic import BaseModel
from sse_starlette.sse import EventSourceResponse

from app.analytics.statistics import RequestStats, Statistics
from app.dashboard import charts
from app.dashboard.charts import BarPart, Series
from app.dashboard.formatting import duration, whole_percent
from app.dashboard.known_values import distinct_values
from app.dashboard.labels import ACTIONS
from app.dashboard.live_feed import DecisionFeed
from app.dashboard.page_security import DashboardRoute
from app.dashboard.query_fields import OptionalWord
from app.dashboard.session import COOKIE, sessions_of
from app.dashboard.templating import page
from app.dependencies import QueriesDep, ResourcesDep
from app.events.queries import EventFilter

router = APIRouter(route_class=DashboardRoute)

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_NEWEST = 30
_NAMED = 12
"""Maximum number of rows in the breakdown table; the others are accessible with filters."""

_ACTIONS = [(action, name.capitalize()) for action, name in ACTIONS.items()]
_VERDICTS = (
    ("supported", "Supported"),
    ("has_unverifiable", "Unverifiable"),
    ("has_contradictions", "Contradicted"),
    ("no_claims", "No claims"),
    ("no_sources", "No sources"),
    ("not_checked", "Not checked"),
)
_PARTS = (("upstream", "Upstream"), ("judge", "Judge"), ("gateway", "Gateway"))
Buckets = Sequence[tuple[datetime, RequestStats]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """A time range: ``steps`` buckets of ``step_s`` seconds each."""

    name: str
    steps: int
    step_s: int

    def start(self, now: datetime) -> datetime:
        """The start of the first bucket; ``now`` falls into the last one."""
        last = int(now.timestamp()) // self.step_s * self.step_s
        return datetime.fromtimestamp(last - (self.steps - 1) * self.step_s, UTC)


SPANS = {
    "hour": TimeSpan(name="Hour", steps=60, step_s=_MINUTE),
    "day": TimeSpan(name="Day", steps=24, step_s=_HOUR),
    "week": TimeSpan(name="Week", steps=28, step_s=6 * _HOUR),
    "month": TimeSpan(name="Month", steps=30, step_s=_DAY),
    "quarter": TimeSpan(name="90 days", steps=90, step_s=_DAY),
}


class OverviewQuery(BaseModel):
    """The page's query parameters. ``by`` says what the breakdown table groups by."""

    span: Literal["hour", "day", "week", "month", "quarter"] = "day"
    by: Literal["agent", "model", "policy"] = "agent"
    agent: OptionalWord = None
    model: OptionalWord = None
    policy: OptionalWord = None

    def filter(self, since: datetime | None = None) -> EventFilter:
        return EventFilter(since=since, agent=self.agent, model=self.model, policy=self.policy)

    def url(self, path: str = "/dashboard/", **changes: str | None) -> str:
        """The URL of ``path`` with these parameters, except for ``changes``."""
        query = self.model_dump(exclude_defaults=True) | changes
        query = {name: value for name, value in query.items() if value is not None}
        return f"{path}?{urlencode(query)}" if query else path


@router.get("/")
async def show(
    request: Request, resources: ResourcesDep, queries: QueriesDep, query: Annotated[OverviewQuery, Query()]
) -> Response:
    """Show statistics for a time range, and the newest decisions."""
    now, span = datetime.now(UTC), SPANS[query.span]
    since = span.start(now)
    filter, statistics = query.filter(since), Statistics(resources.database)
    totals, buckets, groups = await asyncio.gather(
        statistics.totals(filter),
        statistics.buckets(filter, span.step_s, since, now),
        statistics.groups(filter, query.by, brief=True),
    )
    policies = {policy.id: policy.name for policy in await resources.policies.list(limit=1_000)}
    newest = await queries.events(query.filter(), limit=_NEWEST)
    return page(
        request,
        "overview/page.html",
        query=query,
        spans=SPANS,
        totals=totals,
        pace=_pace(totals.requests, (now - since).total_seconds()),
        charts=_charts(buckets, span),
        split=_split(totals),
        rows=[_row(key, numbers, query, policies) for key, numbers in groups[:_NAMED]],
        agents=await distinct_values(resources.database, "agent"),
        models=await distinct_values(resources.database, "model"),
        policies=policies,
        readings=resources.metrics.readings(),
        newest=newest.items,
    )


@router.get("/live")
async def live(
    request: Request, resources: ResourcesDep, query: Annotated[OverviewQuery, Query()]
) -> EventSourceResponse:
    """New decisions as server-sent events, each with an HTML row of the page."""
    sessions, cookie = sessions_of(request), request.cookies.get(COOKIE, "")
    after = request.headers.get("last-event-id") or request.query_params.get("after")
    feed = DecisionFeed(resources.database, query.filter(), after=after)
    return EventSourceResponse(feed.run(lambda: sessions.find(cookie)), headers={"Cache-Control": "no-store"})


def _pace(requests: int, seconds: float) -> str:
    """The rate per minute, hour or day: the first unit that gives at least 1."""
    for word, length in (("per minute", _MINUTE), ("per hour", _HOUR)):
        if (number := requests / max(seconds, 1) * length) >= 1:
            return f"{number:,.1f} {word}"
    return f"{requests / max(seconds, 1) * _DAY:,.1f} per day"


def _charts(buckets: Buckets, span: TimeSpan) -> list[Markup]:
    axis = charts.time_axis([start for start, _ in buckets], span.step_s)

    def series(named: Sequence[tuple[str, str]], value: Callable[[RequestStats, str], float | None]) -> list[Series]:
        found = [
            Series(name=name, tone=key, values=[value(numbers, key) for _, numbers in buckets]) for key, name in named
        ]
        return [each for each in found if any(each.values)] or found[:1]

    trust = [Series(name="Mean", tone="accent", values=[numbers.trust_score for _, numbers in buckets])]
    return [
        charts.stacked("Requests by action", axis, series(_ACTIONS, lambda of, key: of.actions[key])),
        charts.stacked("Requests by verdict", axis, series(_VERDICTS, lambda of, key: of.verdicts[key])),
        charts.lines("Trust", axis, trust, show=whole_percent, top=1.0),
        charts.stacked("Mean latency by part", axis, series(_PARTS, _mean), show=duration),
    ]


def _mean(numbers: RequestStats, part: str) -> float | None:
    """The mean over all requests, including those without this part, so that the parts add up to the total's mean."""
    times = numbers.times.get(part)
    return times.sum_ms / numbers.requests if times is not None and numbers.requests else None


def _split(totals: RequestStats) -> list[dict[str, Any]]:
    named = (*_PARTS, ("total", "Total"))
    return [
        {"key": key, "name": name, "mean": _mean(totals, key), **totals.latency_ms.get(key, {})} for key, name in named
    ]


def _row(key: str | None, numbers: RequestStats, query: OverviewQuery, policies: dict[str, str]) -> dict[str, Any]:
    parts = [
        BarPart(name=f"{name}: {numbers.actions[action]:,}", value=numbers.actions[action], tone=action)
        for action, name in _ACTIONS
    ]
    said = ", ".join(part.name for part in parts if part.value)
    return {
        "name": policies.get(key or "", key) if query.by == "policy" else key,
        "url": None if key is None else query.url(**{query.by: key}),
        "numbers": numbers,
        "bar": charts.share_bar(parts, label=said or "no requests"),
    }
