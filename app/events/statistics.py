"""The event log in numbers: how many requests, what became of them, how long it took."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Integer, Select, case, cast, extract, func, select

from app.db import Database
from app.events.queries import EventFilter, decisions_matching, requests_matching
from app.tables import decisions, requests

_PERCENT = (50, 95, 99)
_MOST_GROUPS = 100
_LATENCIES: Mapping[str, ColumnElement[Any]] = {
    "total": requests.c.total_ms,
    "upstream": requests.c.upstream_ms,
    "judge": requests.c.judge_ms,
}
Group = str | None


@dataclass(slots=True, kw_only=True)
class Numbers:
    """Requests, counted. ``latency_ms``: percentiles by what took the time."""

    requests: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_ms: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, row: Any) -> None:
        self.requests += row.count
        self.actions[row.action] += row.count
        self.verdicts[row.verdict] += row.count
        self.statuses[row.status] += row.count
        # PostgreSQL adds up large integers as decimals.
        self.prompt_tokens += int(row.prompt_tokens or 0)
        self.completion_tokens += int(row.completion_tokens or 0)

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "requests": self.requests,
            "actions": dict(self.actions),
            "verdicts": dict(self.verdicts),
            "statuses": dict(self.statuses),
            "rates": {action: _share(self.actions[action], self.requests) for action in ("warn", "block")},
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        }
        return told | ({"latency_ms": self.latency_ms} if self.latency_ms else {})


class Statistics:
    """Numbers of one database; all raise DatabaseUnavailableError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def totals(self, filter: EventFilter) -> dict[str, Any]:
        """All requests that match, as one."""
        groups = await self._grouped(filter, None)
        return groups.get(None, Numbers()).told()

    async def groups(self, filter: EventFilter, by: str) -> list[dict[str, Any]]:
        """The requests by ``agent`` or ``model``, those with the most first; at most a hundred groups."""
        found = await self._grouped(filter, by)
        largest = sorted(found.items(), key=lambda item: (-item[1].requests, item[0] or ""))[:_MOST_GROUPS]
        return [{"key": key, **numbers.told()} for key, numbers in largest]

    async def buckets(self, filter: EventFilter, seconds: int, start: datetime, end: datetime) -> list[dict[str, Any]]:
        """The requests by time, from ``start`` to ``end`` in steps of ``seconds``, empty steps among them."""
        step = self._epoch(requests.c.ts, seconds)
        found: dict[int, Numbers] = {}
        async with self._database.read() as connection:
            for row in await connection.execute(_counted(requests_matching(filter, step.label("group")), step)):
                found.setdefault(int(row.group), Numbers()).add(row)
        first, last = (int(time.timestamp()) // seconds * seconds for time in (start, end))
        steps = range(first, last + (seconds if int(end.timestamp()) % seconds else 0), seconds)
        return [{"start": datetime.fromtimestamp(at, UTC), **found.get(at, Numbers()).told()} for at in steps]

    async def phases(self, filter: EventFilter) -> list[dict[str, Any]]:
        """The decisions by category and phase: actions, reason codes, and what deciding took."""
        return await self._decided(filter, (decisions.c.category, decisions.c.phase))

    async def policies(self, filter: EventFilter) -> list[dict[str, Any]]:
        """The decisions by policy, and by whether it was in shadow."""
        found = await self._decided(filter, (decisions.c.policy_id, decisions.c.shadow))
        names = decisions_matching(filter, decisions.c.policy_id, func.max(decisions.c.policy_name))
        async with self._database.read() as connection:
            called = {row[0]: row[1] for row in await connection.execute(names.group_by(decisions.c.policy_id))}
        return [{**row, "policy_name": called.get(row["policy_id"])} for row in found[:_MOST_GROUPS]]

    async def _grouped(self, filter: EventFilter, by: str | None) -> dict[Group, Numbers]:
        key = None if by is None else requests.c[by]
        found: dict[Group, Numbers] = {}
        columns = [] if key is None else [key.label("group")]
        async with self._database.read() as connection:
            for row in await connection.execute(_counted(requests_matching(filter, *columns), *columns)):
                found.setdefault(row.group if columns else None, Numbers()).add(row)
            for name, value in _LATENCIES.items():
                values = requests_matching(filter, *columns, value.label("value")).where(value.is_not(None))
                for *group, percentiles in _read(await connection.execute(_percentiles(values, columns)), columns):
                    found.setdefault(group[0] if group else None, Numbers()).latency_ms[name] = percentiles
        return found

    async def _decided(self, filter: EventFilter, keys: Sequence[ColumnElement[Any]]) -> list[dict[str, Any]]:
        counts = decisions_matching(
            filter, *keys, decisions.c.action, decisions.c.reason_code, func.count().label("count")
        ).group_by(*keys, decisions.c.action, decisions.c.reason_code)
        values = decisions_matching(filter, *keys, decisions.c.latency_ms.label("value"))
        names = [str(key.key) for key in keys]
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        async with self._database.read() as connection:
            for *of, action, reason_code, count in await connection.execute(counts):
                row = found.setdefault(
                    tuple(of),
                    {
                        **dict(zip(names, of, strict=True)),
                        "decisions": 0,
                        "actions": Counter(),
                        "reason_codes": Counter(),
                    },
                )
                row["decisions"] += count
                row["actions"][action] += count
                if reason_code is not None:
                    row["reason_codes"][reason_code] += count
            for *of, percentiles in _read(await connection.execute(_percentiles(values, keys)), keys):
                found[tuple(of)]["latency_ms"] = percentiles
        return sorted(found.values(), key=lambda row: (-row["decisions"], *(str(row[name]) for name in names)))

    def _epoch(self, time: ColumnElement[Any], step: int) -> ColumnElement[Any]:
        """``time`` in whole steps of so many seconds since 1970."""
        if self._database.dialect == "sqlite":
            seconds: ColumnElement[Any] = cast(func.strftime("%s", time), Integer)
        else:
            seconds = cast(func.floor(extract("epoch", time)), BigInteger)
        return seconds - seconds % step


def _counted(query: Select[Any], *groups: ColumnElement[Any]) -> Select[Any]:
    columns = requests.c
    by = (columns.action, columns.verdict, columns.status)
    return query.add_columns(
        *by,
        func.count().label("count"),
        func.sum(columns.prompt_tokens).label("prompt_tokens"),
        func.sum(columns.completion_tokens).label("completion_tokens"),
    ).group_by(*groups, *by)


def _percentiles(values: Select[Any], groups: Sequence[ColumnElement[Any]]) -> Select[Any]:
    """The percentiles (nearest rank) of the column ``value`` in each group. Both kinds of database have windows; only
    one of them has percentiles."""
    plain = values.subquery()
    keys = [column for column in plain.c if column.key != "value"]
    within = keys or None
    ranked = select(
        *keys,
        plain.c.value,
        func.row_number().over(order_by=plain.c.value, partition_by=within).label("rank"),
        func.count().over(partition_by=within).label("size"),
    ).subquery()
    shown = [column for column in ranked.c if column.key not in ("value", "rank", "size")]
    wanted = [
        func.max(case((ranked.c.rank == (ranked.c.size * percent + 99) // 100, ranked.c.value))).label(f"p{percent}")
        for percent in _PERCENT
    ]
    query = select(*shown, *wanted, func.max(ranked.c.value).label("max"))
    return query.group_by(*shown) if shown else query


def _read(rows: Any, groups: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The groups of each row, then its percentiles by name; rows without any value are left out."""
    names = [f"p{percent}" for percent in _PERCENT] + ["max"]
    return [
        (*row[: len(groups)], {name: round(value, 3) for name, value in zip(names, row[len(groups) :], strict=True)})
        for row in rows
        if row[-1] is not None
    ]


def _share(count: int, of: int) -> float | None:
    return round(count / of, 6) if of else None
