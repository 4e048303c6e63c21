"""``/admin/v1/stats`` and ``/admin/v1/calibration``: statistics of the event log."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Response
from pydantic import Field

from app.analytics.statistics import Statistics
from app.analytics.threshold_calibration import Good, Score, calibrate
from app.api.admin.common import AdminRoute
from app.api.admin.events import FilterParams
from app.dependencies import ResourcesDep
from app.errors import InvalidAdminRequestError
from app.events.queries import EventFilter

router = APIRouter(route_class=AdminRoute, tags=["events"])

_STEPS = {"minute": 60, "hour": 3_600, "day": 86_400}
_MOST_BUCKETS = 2_000
_DEFAULT_SPAN = timedelta(days=1)
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class StatsParams(FilterParams):
    """``until`` defaults to now, ``since`` to a day before ``until``."""

    bucket: Literal["minute", "hour", "day"] | None = None
    by: Literal["agent", "model", "policy"] | None = None


class CalibrationParams(FilterParams):
    score: Score = "lowest"
    good: Good = "allowed"
    percentile: Annotated[float, Field(gt=0, lt=100)] = 5.0


@router.get("/stats")
async def get_stats(resources: ResourcesDep, params: Annotated[StatsParams, Query()]) -> Response:
    """Rates, verdicts and latency percentiles of all matching requests, optionally by time and by agent, model or
    policy."""
    until = params.until or datetime.now(UTC)
    since = params.since or max(until - _DEFAULT_SPAN, _BEGINNING)
    filter = params.model_copy(update={"since": since, "until": until}).filter()
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


async def _groups(
    statistics: Statistics, filter: EventFilter, by: Literal["agent", "model", "policy"]
) -> list[dict[str, Any]]:
    if by == "policy":
        return [decided.to_dict() for decided in await statistics.policies(filter)]
    return [{"key": key, **numbers.to_dict()} for key, numbers in await statistics.groups(filter, by)]


def _check_buckets(since: datetime, until: datetime, seconds: int) -> None:
    detail = None
    if until < since:
        detail = "must not be before since"
    elif (until - since).total_seconds() / seconds > _MOST_BUCKETS:
        detail = f"more than {_MOST_BUCKETS} buckets: use larger buckets or a shorter time"
    if detail is not None:
        raise InvalidAdminRequestError(f"until: {detail}", errors=[{"loc": ["query", "until"], "msg": detail}])


@router.get("/calibration")
async def get_calibration(resources: ResourcesDep, params: Annotated[CalibrationParams, Query()]) -> Response:
    """The scores of good and of bad runs, the threshold that the given percentile of the good ones lies under, and what
    it and every hundredth as a threshold would have blocked."""
    found = await calibrate(
        resources.database, params.filter(), score=params.score, good=params.good, percentile=params.percentile
    )
    return _json(found)


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body, option=orjson.OPT_UTC_Z), media_type="application/json")
