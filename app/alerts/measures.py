"""Computes the metrics of alert rules from the event log."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, func, or_

from app.alerts.rules import AlertDocument
from app.analytics.statistics import RequestStats, Statistics
from app.analytics.usage import TokenStatistics
from app.db.database import Database
from app.db.tables import claims, requests
from app.events.filters import EventFilter
from app.events.sql_conditions import requests_matching
from judges.llm import PriceTable

_UPSTREAM_ERRORS = "upstream_error", "failed", "incomplete"
_JUDGE_ERRORS = "timeout", "overloaded", "judge_error", "unavailable"


async def measure(
    database: Database, prices: PriceTable, rule: AlertDocument, now: datetime
) -> tuple[float | None, int]:
    """Compute the rule's metric over its window, which ends at ``now``. Return the value (None if there were no
    requests) and the number of requests. Raises DatabaseUnavailableError."""
    filter = EventFilter(
        since=now - timedelta(minutes=rule.window_minutes),
        until=now,
        agent=rule.agent,
        model=rule.model,
        policy=rule.policy,
    )
    if (condition := _CONDITIONS.get(rule.metric)) is not None:
        return await _ratio(database, filter, condition)
    totals = await Statistics(database).totals(filter)
    if not totals.requests:
        return None, 0
    if rule.metric == "cost_usd":
        return float((await TokenStatistics(database, prices).totals(filter)).cost), totals.requests
    return _of_totals(rule.metric, totals), totals.requests


def _of_totals(metric: str, totals: RequestStats) -> float | None:
    match metric:
        case "blocked":
            return totals.actions["block"] / totals.requests
        case "contradicted":
            return totals.verdicts["has_contradictions"] / totals.requests
        case "upstream_errors":
            return sum(totals.statuses[status] for status in _UPSTREAM_ERRORS) / totals.requests
        case "trust":
            return totals.trust_score
    return totals.latency_ms.get("total", {}).get("p95")


async def _ratio(database: Database, filter: EventFilter, condition: ColumnElement[bool]) -> tuple[float | None, int]:
    """Among requests with documents, return the share that meets ``condition``, and the number of requests. Reads every
    row in the window."""
    with_documents = requests.c.documents > 0
    query = requests_matching(filter, func.count(), func.count().filter(condition)).where(with_documents)
    async with database.read() as connection:
        count, found = (await connection.execute(query)).one()
    return (found / count if count else None), count


def _claim(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    same = claims.c.request_id == requests.c.request_id, claims.c.ts == requests.c.ts
    return exists().where(and_(*same, condition)).correlate(requests)


_CONDITIONS: Mapping[str, Any] = {
    "unjudged": or_(requests.c.verdict == "not_checked", _claim(claims.c.reason.is_not(None))),
    "judge_errors": or_(
        requests.c.extra["judge_fault"].as_string().is_not(None), _claim(claims.c.reason.in_(_JUDGE_ERRORS))
    ),
}
