"""``/admin/v1/stats``, ``/admin/v1/usage`` and ``/admin/v1/calibration``: statistics of the event log."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from app.analytics.scored_runs import Score, Source
from app.analytics.statistics import Statistics
from app.analytics.threshold_calibration import Good, calibrate
from app.analytics.usage import TokenStatistics, UsageGroup
from app.api.admin.common import AdminRoute
from app.api.admin.events import FilterParams, Time
from app.dependencies import ResourcesDep
from app.errors import InvalidAdminRequestError
from app.events.filters import EventFilter
from app.field_types import Word
from app.identity import Role, requires

router = APIRouter(route_class=AdminRoute, tags=["events"])

_STEPS = {"minute": 60, "hour": 3_600, "day": 86_400}
_MOST_BUCKETS = 2_000
_DEFAULT_SPAN = timedelta(days=1)
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class StatsParams(FilterParams):
    """``until`` defaults to now, and ``since`` to one day before ``until``."""

    bucket: Literal["minute", "hour", "day"] | None = None
    by: Literal["agent", "model", "policy"] | None = None


class UsageParams(BaseModel):
    """``until`` defaults to now, and ``since`` to one day before ``until``. ``key`` is the prefix of a gateway key."""

    model_config = ConfigDict(extra="forbid")

    since: Time | None = None
    until: Time | None = None
    agent: Word | None = None
    model: Word | None = None
    policy: Word | None = None
    key: Word | None = None
    by: UsageGroup | None = None
    bucket: Literal["hour", "day"] | None = None


class CalibrationParams(FilterParams):
    source: Source = "judge"
    score: Score = "lowest"
    good: Good = "allowed"
    percentile: Annotated[float, Field(gt=0, lt=100)] = 5.0


@router.get("/stats")
@requires(Role.VIEWER)
async def get_stats(resources: ResourcesDep, params: Annotated[StatsParams, Query()]) -> Response:
    """Get the rates, verdicts and latency percentiles of all matching requests, optionally grouped by time and by
    agent, model or policy."""
    since, until = _range(params.since, params.until)
    filter = await params.model_copy(update={"since": since, "until": until}).filter(resources.policies)
    statistics = Statistics(resources.database)
    body: dict[str, Any] = {"since": since, "until": until, "totals": (await statistics.totals(filter)).to_dict()}
    body["phases"] = [decided.to_dict() for decided in await statistics.phases(filter)]
    if params.bucket is not None:
        seconds = _STEPS[params.bucket]
        _check_buckets(since, until, seconds)
        buckets = await statistics.buckets(filter, seconds, since, until)
        body["buckets"] = [{"start": start, **numbers.to_dict()} for start, numbers in buckets]
    if params.by is not None:
        body["groups"] = await _groups(statistics, filter, params.by)
    return _json(body)


def _range(since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    until = until or datetime.now(UTC)
    return since or max(until - _DEFAULT_SPAN, _BEGINNING), until


async def _groups(
    statistics: Statistics, filter: EventFilter, by: Literal["agent", "model", "policy"]
) -> list[dict[str, Any]]:
    if by == "policy":
        return [decided.to_dict() for decided in await statistics.policies(filter)]
    return [{"key": key, **numbers.to_dict()} for key, numbers in await statistics.groups(filter, by)]


def _check_buckets(since: datetime, until: datetime, seconds: int) -> None:
    detail = None
    if until < since:
        detail = "must not be earlier than since"
    elif (until - since).total_seconds() / seconds > _MOST_BUCKETS:
        detail = f"more than {_MOST_BUCKETS} buckets: use larger buckets or a shorter time range"
    if detail is not None:
        raise InvalidAdminRequestError(f"until: {detail}", errors=[{"loc": ["query", "until"], "msg": detail}])


@router.get("/usage")
@requires(Role.VIEWER)
async def get_usage(resources: ResourcesDep, params: Annotated[UsageParams, Query()]) -> Response:
    """Get the number of tokens and their cost in US dollars, optionally grouped by time and by agent, model or gateway
    key.

    ``cost_usd`` doesn't include models whose price is unknown. ``unpriced_tokens`` counts their tokens by model.
    """
    since, until = _range(params.since, params.until)
    policy = None if params.policy is None else await resources.policies.id_of(params.policy)
    filter = EventFilter(since=since, until=until, agent=params.agent, model=params.model, policy=policy)
    usage, prices = TokenStatistics(resources.database, resources.prices), resources.prices
    body: dict[str, Any] = {
        "since": since,
        "until": until,
        "prices": {"as_of": prices.as_of, "source": prices.source, "own_as_of": prices.own_as_of},
        "totals": (await usage.totals(filter, key=params.key)).to_dict(),
    }
    if params.bucket is not None:
        seconds = _STEPS[params.bucket]
        _check_buckets(since, until, seconds)
        found = await usage.buckets(filter, seconds, key=params.key)
        body["buckets"] = [{"start": start, **found[start].to_dict()} for start in sorted(found)]
    if params.by is not None:
        groups = await usage.groups(filter, params.by, key=params.key)
        body["groups"] = [{"key": name, **used.to_dict()} for name, used in groups]
    return _json(body)


@router.get("/calibration")
@requires(Role.VIEWER)
async def get_calibration(resources: ResourcesDep, params: Annotated[CalibrationParams, Query()]) -> Response:
    """Suggest a threshold from the scores of good and bad runs. The suggestion is the given percentile of the good
    scores. The reply also says how many runs this threshold, or any multiple of 0.01, would have blocked."""
    found = await calibrate(
        resources.database,
        await params.filter(resources.policies),
        source=params.source,
        score=params.score,
        good=params.good,
        percentile=params.percentile,
    )
    return _json(found)


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body, option=orjson.OPT_UTC_Z), media_type="application/json")
