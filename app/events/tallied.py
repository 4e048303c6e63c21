"""The event log in numbers, from what was counted ahead: whole hours and days, however many requests they had."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.events.counting import By, Group, group_of
from app.events.numbers import Decided, Numbers, Times, percentiles
from app.events.queries import EventFilter, within
from app.statistics_tables import (
    BINS,
    DAY,
    HOUR,
    NONE,
    PARTS,
    STATUSES,
    VERDICTS,
    decision_statistics,
    key_of,
    request_statistics,
)

_requests, _decisions = request_statistics.c, decision_statistics.c
_COUNTS = (
    "requests",
    *(f"verdict_{verdict}" for verdict in VERDICTS),
    *(f"status_{status}" for status in STATUSES),
    *("prompt_tokens", "completion_tokens", "trust_count", "trust_sum"),
)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a filter's time, and the step of the rows that it is to be read from; None: from the events."""

    step: int | None
    filter: EventFilter


def has_requests(filter: EventFilter) -> bool:
    """Whether requests were counted ahead in the way that ``filter`` asks for."""
    return filter.run_id is None and filter.phase is None and filter.reason_code is None and filter.shadow is None


def has_decisions(filter: EventFilter) -> bool:
    return filter.run_id is None


def spans(filter: EventFilter, *, largest: int = DAY) -> list[Span]:
    """The time of ``filter`` in parts: days and hours as far as it has whole ones, and what is left at its ends."""
    return [
        Span(step, replace(filter, since=since, until=until))
        for step, since, until in _parts(filter.since, filter.until, (DAY, HOUR) if largest == DAY else (HOUR,))
    ]


def whole(filter: EventFilter) -> EventFilter:
    """``filter`` with its time made longer until it is whole hours."""
    since, until = filter.since, filter.until
    return replace(filter, since=since and _floor(since, HOUR), until=until and _ceiling(until, HOUR))


def _parts(
    since: datetime | None, until: datetime | None, steps: Sequence[int]
) -> list[tuple[int | None, datetime | None, datetime | None]]:
    if since is not None and until is not None and since >= until:
        return []
    if not steps:
        return [(None, since, until)]
    step, *smaller = steps
    first, last = since and _ceiling(since, step), until and _floor(until, step)
    if first is not None and last is not None and first >= last:
        return _parts(since, until, smaller)
    found: list[tuple[int | None, datetime | None, datetime | None]] = [(step, first, last)]
    if since is not None:
        found = _parts(since, first, smaller) + found
    if until is not None:
        found += _parts(last, until, smaller)
    return found


def _floor(time: datetime, step: int) -> datetime:
    time = time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return time if step == HOUR else time.replace(hour=0)


def _ceiling(time: datetime, step: int) -> datetime:
    floor = _floor(time, step)
    try:
        return floor if floor == time else floor + timedelta(seconds=step)
    except OverflowError:
        return floor  # the last hours of the calendar: nothing is later


async def tallied_requests(
    connection: AsyncConnection,
    span: Span,
    step: int,
    by: By,
    found: dict[Group, Numbers],
    parts: Sequence[str] = PARTS,
) -> None:
    """Add the requests of ``span`` to ``found``, by group; of the time that they take, ``parts``."""
    group = _group(by)
    times = [column for part in parts for column in _times(request_statistics, part)]
    sums = [func.sum(_requests[name]) for name in _COUNTS]
    query = _of_requests(span.filter, step, by, [*group, _requests.action, *sums, *times])
    for row in await connection.execute(query.group_by(*group, _requests.action)):
        key, (action, *values) = row[: len(group)], row[len(group) :]
        counts = dict(zip(_COUNTS, values, strict=False))
        numbers = found.setdefault(_key(key, by), Numbers())
        _add(numbers, action, counts)
        for place, part in enumerate(parts):
            count, sum_ms, max_ms = values[len(_COUNTS) + 3 * place :][:3]
            if count:
                numbers.times.setdefault(part, Times()).add(count, sum_ms, max_ms)


def _add(numbers: Numbers, action: str, counts: dict[str, Any]) -> None:
    numbers.requests += int(counts["requests"])
    numbers.actions[action] += int(counts["requests"])
    for counter, kind, names in ((numbers.verdicts, "verdict", VERDICTS), (numbers.statuses, "status", STATUSES)):
        for name in names:
            if count := int(counts[f"{kind}_{name}"]):
                counter[name] += count
    numbers.prompt_tokens += int(counts["prompt_tokens"])
    numbers.completion_tokens += int(counts["completion_tokens"])
    numbers.trust_count += int(counts["trust_count"])
    numbers.trust_sum += counts["trust_sum"]


async def tallied_request_percentiles(
    connection: AsyncConnection,
    filter: EventFilter,
    by: By,
    found: dict[Group, Numbers],
    parts: Sequence[str] = PARTS,
) -> None:
    """Tell the groups in ``found`` their percentiles, by histograms of all hours that ``filter`` touches. ``parts``: of
    the time that requests take, those asked about."""
    group = _group(by)
    columns = [column for part in parts for column in _histogram(request_statistics, part)]
    size = len(BINS) + 1
    bins: dict[tuple[Group, str], _Histogram] = defaultdict(_Histogram)
    for span in spans(whole(filter)):
        query = _of_requests(span.filter, span.step or HOUR, by, [*group, *columns])
        for row in await connection.execute(query.group_by(*group) if group else query):
            values = row[len(group) :]
            for place, part in enumerate(parts):
                bins[_key(row[: len(group)], by), part].add(values[size * place : size * (place + 1)])
    for (key, part), histogram in bins.items():
        if key in found and (told := histogram.percentiles()):
            found[key].latency_ms[part] = told


async def tallied_decisions(
    connection: AsyncConnection, span: Span, step: int, names: Sequence[str], found: dict[tuple[Any, ...], Decided]
) -> None:
    """Add the decisions of ``span`` to ``found``, by the columns of those names."""
    kinds = [*(_decisions[name] for name in names), _decisions.action, _decisions.reason_code]
    query = _of_decisions(span.filter, step, [*kinds, func.sum(_decisions.decisions)])
    for *of, action, reason_code, count in await connection.execute(query.group_by(*kinds)):
        decided = found.setdefault(tuple(of), Decided(of=dict(zip(names, of, strict=True))))
        decided.add(action, reason_code, int(count))


async def tallied_decision_percentiles(
    connection: AsyncConnection, filter: EventFilter, names: Sequence[str], found: dict[tuple[Any, ...], Decided]
) -> None:
    """Tell the kinds in ``found`` their percentiles, as those of requests are told."""
    keys = [_decisions[name] for name in names]
    columns = _histogram(decision_statistics, "latency")
    bins: dict[tuple[Any, ...], _Histogram] = defaultdict(_Histogram)
    for span in spans(whole(filter)):
        query = _of_decisions(span.filter, span.step or HOUR, [*keys, *columns]).group_by(*keys)
        for row in await connection.execute(query):
            bins[tuple(row[: len(keys)])].add(row[len(keys) :])
    for key, histogram in bins.items():
        if key in found:
            found[key].latency_ms = histogram.percentiles()


async def tallied_names(connection: AsyncConnection, filter: EventFilter) -> dict[str, str]:
    """What each policy was called, by its id, in the days that ``filter`` touches."""
    days = replace(whole(filter), since=filter.since and _floor(filter.since, DAY))
    query = _of_decisions(days, DAY, [_decisions.policy_id, func.max(_decisions.policy_name)])
    return {row[0]: row[1] for row in await connection.execute(query.group_by(_decisions.policy_id))}


async def about(connection: AsyncConnection, filter: EventFilter) -> int:
    """How many requests there are, of whatever kind, in the hours that ``filter`` touches."""
    count = 0
    for span in spans(whole(EventFilter(since=filter.since, until=filter.until))):
        query = _of_requests(span.filter, span.step or HOUR, None, [func.sum(_requests.requests)])
        count += int((await connection.execute(query)).scalar_one() or 0)
    return count


class _Histogram:
    def __init__(self) -> None:
        self.counts = [0] * len(BINS)
        self.largest = 0.0

    def add(self, row: Sequence[Any]) -> None:
        """The largest value, and how many fall into each bin; null where there is no row to count."""
        self.largest = max(self.largest, row[0] or 0.0)
        self.counts = [count + int(more or 0) for count, more in zip(self.counts, row[1:], strict=True)]

    def percentiles(self) -> dict[str, float]:
        return percentiles(self.counts, self.largest)


def _group(by: By) -> list[ColumnElement[Any]]:
    match by:
        case None:
            return []
        case "policy":
            return [_requests.policy_id]
        case int():
            return [_requests.start]
        case _:
            return [_requests[by]]


def _key(row: Sequence[Any], by: By) -> Group:
    if isinstance(by, int):
        seconds = int(row[0].timestamp())
        return seconds - seconds % by
    return group_of(row)


def _times(table: Table, part: str) -> list[ColumnElement[Any]]:
    return [func.sum(table.c[f"{part}_count"]), func.sum(table.c[f"{part}_ms"]), func.max(table.c[f"{part}_max"])]


def _histogram(table: Table, part: str) -> list[ColumnElement[Any]]:
    return [func.max(table.c[f"{part}_max"]), *(func.sum(table.c[f"{part}_{bin:02d}"]) for bin in BINS)]


def _of_requests(filter: EventFilter, step: int, by: By, columns: Sequence[ColumnElement[Any]]) -> Select[Any]:
    wanted = [_requests.step == step, *within(filter, _requests.start), *_named(filter, request_statistics)]
    if by == "policy" and filter.policy is None:
        wanted.append(_requests.policy_id != NONE)
    else:
        wanted.append(_requests.policy_id == (filter.policy or NONE))
    return select(*columns).where(*wanted)


def _of_decisions(filter: EventFilter, step: int, columns: Sequence[ColumnElement[Any]]) -> Select[Any]:
    wanted = [_decisions.step == step, *within(filter, _decisions.start), *_named(filter, decision_statistics)]
    others = {
        "policy_id": filter.policy,
        "phase": filter.phase,
        "reason_code": filter.reason_code,
        "shadow": filter.shadow,
    }
    return select(*columns).where(
        *wanted, *(_decisions[name] == value for name, value in others.items() if value is not None)
    )


def _named(filter: EventFilter, table: Table) -> list[ColumnElement[bool]]:
    wanted = [table.c[name] == key_of(value) for name in ("agent", "model") if (value := getattr(filter, name))]
    return wanted if filter.action is None else [*wanted, table.c.action == filter.action]
