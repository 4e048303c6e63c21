"""Statistics read from hourly and daily rollups, at a cost independent of the number of requests."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.analytics.live_counts import By, Group, group_of
from app.db.rollup_tables import (
    BINS,
    DAY,
    HOUR,
    NONE,
    STATUSES,
    VERDICTS,
    decision_statistics,
    key_of,
    request_statistics,
)
from app.events.filters import EventFilter
from app.events.rollups.request_stats import DecisionStats, LatencyStats, RequestStats, percentiles
from app.events.sql_conditions import within

_requests, _decisions = request_statistics.c, decision_statistics.c
_FEW_COUNTS = "requests", "trust_count", "trust_sum"
_COUNTS = (
    *_FEW_COUNTS,
    *(f"verdict_{verdict}" for verdict in VERDICTS),
    *(f"status_{status}" for status in STATUSES),
    *("prompt_tokens", "completion_tokens"),
)
_SOME = 200


@dataclass(frozen=True, slots=True)
class RollupSpan:
    """A part of a filter's time range. ``step`` selects the rollups to read. If it is None, read the events instead."""

    step: int | None
    filter: EventFilter


def has_requests(filter: EventFilter) -> bool:
    """Whether ``filter`` can be evaluated with the request rollups."""
    covered = EventFilter(
        since=filter.since,
        until=filter.until,
        agent=filter.agent,
        model=filter.model,
        action=filter.action,
        policy=filter.policy,
    )
    return filter == covered


def has_decisions(filter: EventFilter) -> bool:
    """Return whether ``filter`` can be evaluated with the decision rollups."""
    return filter.run_id is None


def spans(filter: EventFilter, *, largest: int = DAY) -> list[RollupSpan]:
    """Split the time range of ``filter`` into whole days, whole hours, and the remainders at its ends."""
    return [
        RollupSpan(step, replace(filter, since=since, until=until))
        for step, since, until in _parts(filter.since, filter.until, (DAY, HOUR) if largest == DAY else (HOUR,))
    ]


def whole(filter: EventFilter) -> EventFilter:
    """Return ``filter`` with its time range extended to whole hours."""
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
        return floor  # These are the last hours that datetime can represent.


class RequestRollups:
    """Request statistics by group, computed from rollups.

    ``parts`` lists the latency parts to include. With ``brief``, only counts, actions, trust and times are computed.
    With ``percentiles``, percentiles are estimated from the histograms of all hours that the time range overlaps.
    """

    def __init__(self, connection: AsyncConnection, by: By, *, parts: Sequence[str], brief: bool, percentiles: bool):
        self.found: dict[Group, RequestStats] = {}
        self._connection, self._by, self._percentiles = connection, by, percentiles
        self._parts, self._counts = parts, _FEW_COUNTS if brief else _COUNTS
        self._bins: dict[tuple[Group, str], _Histogram] = defaultdict(_Histogram)

    async def add(self, span: RollupSpan, step: int) -> None:
        """Add the requests in ``span`` and their histograms."""
        group, counts = _group(self._by), len(self._counts)
        columns: list[ColumnElement[Any]] = [func.sum(_requests[name]) for name in self._counts]
        for part in self._parts:
            columns += _times(request_statistics, part) + (_bins(request_statistics, part) if self._percentiles else [])
        query = _of_requests(span.filter, step, self._by, [*group, _requests.action, *columns])
        for row in await self._connection.execute(query.group_by(*group, _requests.action)):
            key, (action, *values) = _key(row[: len(group)], self._by), row[len(group) :]
            numbers = self.found.setdefault(key, RequestStats())
            _add(numbers, action, dict(zip(self._counts, values, strict=False)))
            for part, (count, sum_ms, largest, *bins) in self._by_part(values[counts:]):
                if count:
                    numbers.times.setdefault(part, LatencyStats()).add(count, sum_ms, largest)
                if bins:
                    self._bins[key, part].add(largest, bins)

    async def touch(self, filter: EventFilter) -> None:
        """Add the hours that ``filter`` overlaps to the histograms, but not to the counts."""
        if not self._percentiles:
            return
        group = _group(self._by)
        columns = [each for part in self._parts for each in _histogram(request_statistics, part)]
        query = _of_requests(whole(filter), HOUR, self._by, [*group, *columns])
        for row in await self._connection.execute(query.group_by(*group) if group else query):
            for part, (largest, *bins) in self._by_part(row[len(group) :]):
                self._bins[_key(row[: len(group)], self._by), part].add(largest, bins)

    def stats(self) -> dict[Group, RequestStats]:
        """Return the statistics with percentiles."""
        for (key, part), histogram in self._bins.items():
            if key in self.found and (percentiles := histogram.percentiles()):
                self.found[key].latency_ms[part] = percentiles
        return self.found

    def _by_part(self, values: Sequence[Any]) -> list[tuple[str, Sequence[Any]]]:
        size = len(values) // max(len(self._parts), 1)
        return [(part, values[size * place : size * (place + 1)]) for place, part in enumerate(self._parts)]


def _add(numbers: RequestStats, action: str, counts: Mapping[str, Any]) -> None:
    numbers.requests += int(counts["requests"])
    numbers.actions[action] += int(counts["requests"])
    numbers.trust_count += int(counts["trust_count"])
    numbers.trust_sum += counts["trust_sum"]
    if len(counts) == len(_FEW_COUNTS):
        return
    for counter, kind, names in ((numbers.verdicts, "verdict", VERDICTS), (numbers.statuses, "status", STATUSES)):
        for name in names:
            if count := int(counts[f"{kind}_{name}"]):
                counter[name] += count
    numbers.prompt_tokens += int(counts["prompt_tokens"])
    numbers.completion_tokens += int(counts["completion_tokens"])


class DecisionRollups:
    """Decision statistics and percentiles, computed from rollups and grouped by the columns ``names``. When grouping by
    policy, ``called`` maps policy ids to names."""

    def __init__(self, connection: AsyncConnection, names: Sequence[str]) -> None:
        self.found: dict[tuple[Any, ...], DecisionStats] = {}
        self.called: dict[str, str] = {}
        self._connection, self._names = connection, names
        self._bins: dict[tuple[Any, ...], _Histogram] = defaultdict(_Histogram)

    async def add(self, span: RollupSpan, step: int) -> None:
        """Add the decisions in ``span`` and their histograms."""
        kinds = [_decisions.action, _decisions.reason_code]
        for of, (action, reason_code, count, *others) in await self._read(
            span.filter, step, kinds, func.sum(_decisions.decisions)
        ):
            decided = self.found.setdefault(of, DecisionStats(of=dict(zip(self._names, of, strict=True))))
            decided.add(action, reason_code, int(count))
            self._add(of, others)

    async def touch(self, filter: EventFilter) -> None:
        """Add the hours that ``filter`` overlaps to the histograms, but not to the counts."""
        for of, others in await self._read(whole(filter), HOUR, []):
            self._add(of, others)

    def stats(self) -> dict[tuple[Any, ...], DecisionStats]:
        """Return the statistics with percentiles."""
        for key, histogram in self._bins.items():
            if key in self.found:
                self.found[key].latency_ms = histogram.percentiles()
        return self.found

    async def _read(
        self, filter: EventFilter, step: int, kinds: Sequence[ColumnElement[Any]], *sums: ColumnElement[Any]
    ) -> list[tuple[tuple[Any, ...], Sequence[Any]]]:
        keys = [*(_decisions[name] for name in self._names), *kinds]
        columns = [*keys, *sums, func.max(_decisions.policy_name), *_histogram(decision_statistics, "latency")]
        rows = await self._connection.execute(_of_decisions(filter, step, columns).group_by(*keys))
        count = len(self._names)
        return [(tuple(row[:count]), row[count:]) for row in rows]

    def _add(self, of: tuple[Any, ...], others: Sequence[Any]) -> None:
        name, largest, *bins = others
        self._bins[of].add(largest, bins)
        if "policy_id" in self._names:
            id = of[self._names.index("policy_id")]
            self.called[id] = max(name, self.called.get(id, name))


async def more_than(connection: AsyncConnection, filter: EventFilter, few: int) -> bool:
    """Return whether the hours that ``filter`` overlaps contain more than ``few`` requests in total."""
    hours = spans(whole(EventFilter(since=filter.since, until=filter.until)))
    # Every row counts at least one request, and most count many, so reading a few rows is usually enough.
    for most in (min(few, _SOME), few + 1):
        count = 0
        for span in hours:
            rows = _of_requests(span.filter, span.step or HOUR, None, [_requests.requests]).limit(most).subquery()
            count += int((await connection.execute(select(func.sum(rows.c.requests)))).scalar_one() or 0)
            if count > few:
                return True
    return False


class _Histogram:
    def __init__(self) -> None:
        self.counts = [0] * len(BINS)
        self.largest = 0.0

    def add(self, largest: float | None, bins: Sequence[int | None]) -> None:
        """Add a maximum and the bin counts, which are null if there are no rows."""
        self.largest = max(self.largest, largest or 0.0)
        self.counts = [count + int(more or 0) for count, more in zip(self.counts, bins, strict=True)]

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
    return [func.max(table.c[f"{part}_max"]), *_bins(table, part)]


def _bins(table: Table, part: str) -> list[ColumnElement[Any]]:
    return [func.sum(table.c[f"{part}_{bin:02d}"]) for bin in BINS]


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
