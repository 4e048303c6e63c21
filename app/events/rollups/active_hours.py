"""Finds the hours that have matching rows in the rollups, for filters that no single index covers.

Without this, a query with a filter on two columns, or on the decisions on a request, would scan all rows that match one
of the conditions. If few rows match both conditions, the scan could continue to the oldest row.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from sqlalchemy import ColumnElement, and_, case, false, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.rollup_tables import (
    BINS,
    DAY,
    HOUR,
    NONE,
    STATUSES,
    VERDICTS,
    bin_of,
    decision_statistics,
    key_of,
    request_statistics,
)
from app.events.filters import EventFilter

Kind = Literal["requests", "decisions"]

_requests, _decisions = request_statistics.c, decision_statistics.c
_MOST_DAYS = 32
_MOST_JOINED = 5_000
"""Consecutive hours are combined into one time range if they have at most this many requests in total."""
_TICK, _LAST = timedelta(microseconds=1), datetime.max.replace(tzinfo=UTC)
_STEP = {HOUR: timedelta(hours=1), DAY: timedelta(days=1)}


def needs_hours(filter: EventFilter, kind: Kind) -> bool:
    """Return True if no single index covers ``filter``."""
    if filter.run_id is not None:
        return False  # A run has few rows, and there is an index for them.
    of_decisions = filter.policy, filter.phase, filter.reason_code
    others = (filter.min_trust, filter.max_trust, filter.id_prefix) != (None, None, None)
    wanted = [value for value in (filter.agent, filter.model, filter.action) if value is not None]
    decided = [value for value in of_decisions if value is not None]
    if filter.shadow is not None or (kind == "requests" and (decided or others or _of_request(filter))):
        return True
    return len(wanted) + len(decided) > 1


async def hours_with(
    connection: AsyncConnection, filter: EventFilter, kind: Kind, until: datetime | None
) -> AsyncIterator[tuple[datetime, datetime, int]]:
    """Yield the time ranges (start, end) that have matching rows, latest first, each with the approximate number of
    rows to read. A range is one hour, or consecutive hours in one day. Ranges that start after ``until`` are left
    out."""
    most = 1
    until = None if until is None or until == _LAST else until + _TICK
    while True:
        days = await _starts(connection, filter, kind, DAY, filter.since and _day(filter.since), until, most)
        for day, _ in days:
            end = min(until or day + _STEP[DAY], day + _STEP[DAY])
            hours = await _starts(connection, filter, kind, HOUR, day, end, 24)
            for span in _joined(hours):
                yield span
        if len(days) < most:
            return
        until, most = days[-1][0], min(_MOST_DAYS, most * 2)


def _joined(hours: list[tuple[datetime, int]]) -> list[tuple[datetime, datetime, int]]:
    found: list[tuple[datetime, datetime, int]] = []
    for hour, count in hours:
        end = hour + _STEP[HOUR]
        if found and found[-1][0] == end and found[-1][2] + count <= _MOST_JOINED:
            found[-1] = hour, found[-1][1], found[-1][2] + count
        else:
            found.append((hour, end, count))
    return found


def _day(time: datetime) -> datetime:
    return time.replace(hour=0, minute=0, second=0, microsecond=0)


async def _starts(
    connection: AsyncConnection,
    filter: EventFilter,
    kind: Kind,
    step: int,
    since: datetime | None,
    until: datetime | None,
    most: int,
) -> list[tuple[datetime, int]]:
    start = _requests.start if kind == "requests" else _decisions.start
    count = func.sum(_requests.requests if kind == "requests" else _decisions.decisions)
    wanted = _of_requests(filter, step) if kind == "requests" else _of_decisions(filter, step, filter.action)
    if since is not None:
        wanted.append(start >= since)
    if until is not None:
        wanted.append(start < until)
    query = select(start, count).where(*wanted).group_by(start).order_by(start.desc()).limit(most)
    if kind == "requests" and (has := _of_request(filter)):
        # The count includes all requests in the hour, because no index finds requests by verdict, status or latency.
        query = query.having(func.max(case((and_(*has), 1), else_=0)) == 1)
    return [(row[0], int(row[1])) for row in await connection.execute(query)]


def _of_requests(filter: EventFilter, step: int) -> list[ColumnElement[bool]]:
    wanted = [_requests.step == step, _requests.policy_id == (filter.policy or NONE), *_named(filter, _requests)]
    if filter.action is not None:
        wanted.append(_requests.action == filter.action)
    if (filter.phase, filter.reason_code, filter.shadow) != (None, None, None):
        # A single decision must match all of these fields. The request's action doesn't have to be its action.
        wanted.append(_requests.start.in_(select(_decisions.start).where(*_of_decisions(filter, step, None))))
    return wanted


def _of_request(filter: EventFilter) -> list[ColumnElement[bool]]:
    """Build the conditions on an hour: it must contain a request with the filter's verdict, a request with its status,
    and a request in the latency bins that its bounds cover."""
    known = {"verdict": VERDICTS, "status": STATUSES}
    wanted = [
        _requests[f"{name}_{value}"] > 0 for name, values in known.items() if (value := getattr(filter, name)) in values
    ]
    if filter.min_ms is not None or filter.max_ms is not None:
        first, last = bin_of(filter.min_ms or 0.0), BINS[-1] if filter.max_ms is None else bin_of(filter.max_ms)
        wanted.append(or_(false(), *(_requests[f"total_{bin:02d}"] > 0 for bin in range(first, last + 1))))
    return wanted


def _of_decisions(filter: EventFilter, step: int, action: str | None) -> list[ColumnElement[bool]]:
    values = {
        "policy_id": filter.policy,
        "phase": filter.phase,
        "reason_code": filter.reason_code,
        "shadow": filter.shadow,
        "action": action,
    }
    others = [_decisions[name] == value for name, value in values.items() if value is not None]
    return [_decisions.step == step, *_named(filter, _decisions), *others]


def _named(filter: EventFilter, columns: Any) -> list[ColumnElement[bool]]:
    names = {"agent": filter.agent, "model": filter.model}
    return [columns[name] == key_of(value) for name, value in names.items() if value is not None]
