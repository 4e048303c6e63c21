"""Uses the rollups to find the hours that have rows for a filter that no single index covers.

Otherwise, a filter by two columns, or by a request's decisions, would scan all rows that match one of them; if few
match, that means all rows down to the oldest.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.rollup_tables import DAY, HOUR, NONE, decision_statistics, key_of, request_statistics
from app.events.filters import EventFilter

Kind = Literal["requests", "decisions"]

_requests, _decisions = request_statistics.c, decision_statistics.c
_MOST_DAYS = 32
_TICK, _LAST = timedelta(microseconds=1), datetime.max.replace(tzinfo=UTC)
_STEP = {HOUR: timedelta(hours=1), DAY: timedelta(days=1)}


def needs_hours(filter: EventFilter, kind: Kind) -> bool:
    """Whether no single index covers ``filter``."""
    if filter.run_id is not None:
        return False  # A run has few rows, and there is an index for them.
    of_decisions = filter.policy, filter.phase, filter.reason_code
    wanted = [value for value in (filter.agent, filter.model, filter.action) if value is not None]
    decided = [value for value in of_decisions if value is not None]
    if filter.shadow is not None or (kind == "requests" and decided):
        return True
    return len(wanted) + len(decided) > 1


async def hours_with(
    connection: AsyncConnection, filter: EventFilter, kind: Kind, until: datetime | None
) -> AsyncIterator[tuple[datetime, datetime]]:
    """Yield the time ranges (start, end) that have matching rows, latest first. Each is one hour, or consecutive hours
    in one day. Ranges that start after ``until`` are left out."""
    most = 1
    until = None if until is None or until == _LAST else until + _TICK
    while True:
        days = await _starts(connection, filter, kind, DAY, filter.since and _day(filter.since), until, most)
        for day in days:
            end = min(until or day + _STEP[DAY], day + _STEP[DAY])
            hours = await _starts(connection, filter, kind, HOUR, day, end, 24)
            for span in _joined(hours):
                yield span
        if len(days) < most:
            return
        until, most = days[-1], min(_MOST_DAYS, most * 2)


def _joined(hours: list[datetime]) -> list[tuple[datetime, datetime]]:
    found: list[tuple[datetime, datetime]] = []
    for hour in hours:
        end = hour + _STEP[HOUR]
        if found and found[-1][0] == end:
            found[-1] = hour, found[-1][1]
        else:
            found.append((hour, end))
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
) -> list[datetime]:
    start = _requests.start if kind == "requests" else _decisions.start
    wanted = _of_requests(filter, step) if kind == "requests" else _of_decisions(filter, step, filter.action)
    if since is not None:
        wanted.append(start >= since)
    if until is not None:
        wanted.append(start < until)
    query = select(start).where(*wanted).distinct().order_by(start.desc()).limit(most)
    return list((await connection.execute(query)).scalars())


def _of_requests(filter: EventFilter, step: int) -> list[ColumnElement[bool]]:
    wanted = [_requests.step == step, _requests.policy_id == (filter.policy or NONE), *_named(filter, _requests)]
    if filter.action is not None:
        wanted.append(_requests.action == filter.action)
    if (filter.phase, filter.reason_code, filter.shadow) != (None, None, None):
        # A single decision must match all of these; the request's action is independent of them.
        wanted.append(_requests.start.in_(select(_decisions.start).where(*_of_decisions(filter, step, None))))
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
