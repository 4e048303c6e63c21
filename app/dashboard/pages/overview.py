"""``/dashboard``: statistics for a time range, and the live feed of decisions."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Query, Request, Response
from pydantic import BaseModel, Field
from sse_starlette.sse import EventSourceResponse

from app.analytics.model_changes import ModelChange, model_changes
from app.analytics.statistics import RequestStats, Statistics
from app.analytics.usage import TokenStatistics, TokenTotals, UsageGroup
from app.auth.key_store import KeyStore
from app.dashboard import charts
from app.dashboard.charts import BarPart
from app.dashboard.known_values import distinct_values
from app.dashboard.live_feed import DecisionFeed
from app.dashboard.overview.figures import (
    NAMED_ACTIONS,
    NAMED_PARTS,
    PeriodNumbers,
    compared_costs,
    figures,
    mean_latency,
    overview_charts,
)
from app.dashboard.overview.time_range import PRESETS, TimeRange, between
from app.dashboard.page_security import DashboardRoute
from app.dashboard.policies.change_log import LoggedChange, logged_changes
from app.dashboard.query_fields import OptionalTime, OptionalWord
from app.dashboard.session_cookie import COOKIE, sessions_of
from app.dashboard.templating import page
from app.dependencies import QueriesDep, ResourcesDep
from app.events.filters import EventFilter
from app.identity import Role, requires
from app.resources import Resources

router = APIRouter(route_class=DashboardRoute)

TokenGroups = Sequence[tuple[str | None, TokenTotals]]

_NEWEST = 30
_MOST_CHANGES = 10
_NAMED = 12
"""Maximum number of rows in the breakdown table. Use filters to see the rest."""


class OverviewQuery(BaseModel):
    """The page's query parameters. If ``from`` or ``to`` (in UTC) is set, ``span`` is ignored. ``by`` selects how to
    group the breakdown table, and ``cost`` how to group the table of tokens and costs."""

    span: Literal["hour", "day", "week", "month", "quarter"] = "day"
    from_: Annotated[OptionalTime, Field(alias="from")] = None
    to: OptionalTime = None
    by: Literal["agent", "model", "policy"] = "agent"
    cost: UsageGroup = "model"
    agent: OptionalWord = None
    model: OptionalWord = None
    policy: OptionalWord = None

    @property
    def is_custom(self) -> bool:
        return self.from_ is not None or self.to is not None

    def range(self, now: datetime) -> TimeRange:
        """The time range. Raises HTTPException if the range is empty or too long."""
        if not self.is_custom:
            return PRESETS[self.span].until(now)
        try:
            return between(self.from_, self.to, now)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None

    def filter(self, range: TimeRange | None = None) -> EventFilter:
        since, until = (None, None) if range is None else (range.since, range.until)
        return EventFilter(since=since, until=until, agent=self.agent, model=self.model, policy=self.policy)

    def url(self, path: str = "/dashboard/", **changes: str | None) -> str:
        """Return the URL of ``path`` with these parameters, after applying ``changes``. Changing ``span`` replaces a
        custom time range."""
        query = self.model_dump(exclude_defaults=True, by_alias=True, mode="json")
        if "span" in changes:
            query = {name: value for name, value in query.items() if name not in ("from", "to")}
        query = {name: value for name, value in (query | changes).items() if value is not None}
        return f"{path}?{urlencode(query)}" if query else path


@requires(Role.VIEWER)
async def show(
    request: Request, resources: ResourcesDep, queries: QueriesDep, query: Annotated[OverviewQuery, Query()]
) -> Response:
    """Show statistics for a time range and the newest decisions."""
    range = query.range(datetime.now(UTC))
    # Run at most three queries at a time. More would open new database connections for each view of the page.
    now, before, (groups, costs, costs_before) = await asyncio.gather(
        _numbers(resources, query, range),
        _numbers(resources, query, range.before()),
        _groups(resources, query, range),
    )
    changes = await _changes(resources, query, range, now, before)
    listed = partial(_all_requests_url, query, range)
    policies = {policy.id: policy.name for policy in await resources.policies.list(limit=1_000)}
    newest = await queries.events(query.filter(), limit=_NEWEST)
    return page(
        request,
        "overview/page.html",
        query=query,
        presets=PRESETS,
        range=range,
        totals=now.totals,
        figures=figures(now, before, range),
        charts=overview_charts(
            now,
            before,
            range,
            partial(_requests_url, query),
            listed,
            [(each.ts, _described(each)) for each in changes[:_MOST_CHANGES]],
        ),
        requests_url=listed,
        changes=changes[:_MOST_CHANGES],
        more_changes=len(changes) > _MOST_CHANGES,
        split=_split(now.totals),
        rows=[_row(key, numbers, query, policies) for key, numbers in groups[:_NAMED]],
        costs=compared_costs(costs, costs_before)[:_NAMED],
        key_names=await _key_names(resources, query, [*costs, *costs_before]),
        used=now.used(),
        prices=resources.prices,
        agents=await distinct_values(resources.database, "agent"),
        models=await distinct_values(resources.database, "model"),
        policies=policies,
        readings=resources.metrics.readings(),
        newest=newest.items,
    )


async def _numbers(resources: Resources, query: OverviewQuery, range: TimeRange) -> PeriodNumbers:
    statistics, usage = Statistics(resources.database), TokenStatistics(resources.database, resources.prices)
    filter = query.filter(range)
    return PeriodNumbers(
        totals=await statistics.totals(filter),
        buckets=await statistics.buckets(filter, range.step_s, range.since, range.until),
        usage=await usage.buckets(filter, range.step_s),
    )


async def _changes(
    resources: Resources, query: OverviewQuery, range: TimeRange, now: PeriodNumbers, before: PeriodNumbers
) -> Sequence[LoggedChange | ModelChange]:
    """Return the changes to policies, and the models that appeared or disappeared, newest first."""
    database, filter, most = resources.database, query.filter(range), _MOST_CHANGES + 1
    changes: list[LoggedChange | ModelChange] = [
        *await logged_changes(database, since=range.since, until=range.until, policy_id=query.policy, limit=most),
        *await model_changes(database, filter, before.usage, now.usage, step_s=range.step_s, limit=most),
    ]
    return sorted(changes, key=lambda change: change.ts, reverse=True)[:most]


def _described(change: LoggedChange | ModelChange) -> str:
    if isinstance(change, ModelChange):
        return f"{change.model}: {'first' if change.appeared else 'last'} request"
    return f"{change.name}: {change.word} by {change.actor}"


async def _groups(
    resources: Resources, query: OverviewQuery, range: TimeRange
) -> tuple[Sequence[tuple[str | None, RequestStats]], TokenGroups, TokenGroups]:
    """Return the groups of requests, and the costs by group in this period and the previous one."""
    usage, filter = TokenStatistics(resources.database, resources.prices), query.filter(range)
    groups = await Statistics(resources.database).groups(filter, query.by, brief=True)
    costs = await usage.groups(filter, query.cost)
    return groups, costs, await usage.groups(query.filter(range.before()), query.cost)


@router.get("/live")
@requires(Role.VIEWER)
async def live(
    request: Request, resources: ResourcesDep, query: Annotated[OverviewQuery, Query()]
) -> EventSourceResponse:
    """Stream new decisions as server-sent events. Each contains an HTML row for the page."""
    sessions, cookie = sessions_of(request), request.cookies.get(COOKIE, "")
    after = request.headers.get("last-event-id") or request.query_params.get("after")
    feed = DecisionFeed(resources.database, query.filter(), after=after)
    return EventSourceResponse(
        feed.run(lambda: sessions.find(cookie, used=False)), headers={"Cache-Control": "no-store"}
    )


async def _key_names(resources: Resources, query: OverviewQuery, costs: TokenGroups) -> Mapping[str, str]:
    """Return the names of the gateway keys by prefix, if the table of costs shows keys."""
    if query.cost != "key":
        return {}
    return await KeyStore(resources.database).names([prefix for prefix, _ in costs if prefix])


def _requests_url(query: OverviewQuery, since: datetime, until: datetime) -> str:
    """Return the URL of the requests between two times, in UTC, with the filters of the page."""
    filters = query.model_dump(include={"agent", "model", "policy"}, exclude_none=True)
    times = {"since": f"{since:%Y-%m-%dT%H:%M}", "until": f"{until:%Y-%m-%dT%H:%M}"}
    return f"/dashboard/requests?{urlencode(filters | times)}"


def _all_requests_url(query: OverviewQuery, range: TimeRange, **changes: str) -> str:
    """Return the URL of the page's requests, with its filters and time range, after adding ``changes``."""
    filters = query.model_dump(include={"agent", "model", "policy"}, exclude_none=True)
    times = {"since": f"{range.since:%Y-%m-%dT%H:%M}"}
    if query.to is not None:
        times["until"] = f"{range.until:%Y-%m-%dT%H:%M}"
    return f"/dashboard/requests?{urlencode(filters | times | changes)}"


def _split(totals: RequestStats) -> list[dict[str, Any]]:
    named = (*NAMED_PARTS, ("total", "Total"))
    return [
        {"key": key, "name": name, "mean": mean_latency(totals, key), **totals.latency_ms.get(key, {})}
        for key, name in named
    ]


def _row(key: str | None, numbers: RequestStats, query: OverviewQuery, policies: dict[str, str]) -> dict[str, Any]:
    parts = [
        BarPart(name=f"{name}: {numbers.actions[action]:,}", value=numbers.actions[action], tone=action)
        for action, name in NAMED_ACTIONS
    ]
    said = ", ".join(part.name for part in parts if part.value)
    return {
        "name": policies.get(key or "", key) if query.by == "policy" else key,
        "url": None if key is None else query.url(**{query.by: key}),
        "numbers": numbers,
        "bar": charts.share_bar(parts, label=said or "no requests"),
    }
