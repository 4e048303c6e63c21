"""Statistics counted from event rows. They are exact and support every filter, but are slow for many rows."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    and_,
    case,
    cast,
    extract,
    func,
    literal_column,
    select,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.tables import decisions, requests
from app.events.filters import EventFilter
from app.events.rollups.request_stats import PERCENT, DecisionStats, LatencyStats, RequestStats
from app.events.sql_conditions import decisions_matching, requests_matching, within

By = Literal["agent", "model", "policy"] | int | None
"""How to group requests. A number groups them by time, in steps of that many seconds."""
Group = str | int | None

_of = requests.c
_rest = _of.total_ms - func.coalesce(_of.upstream_ms, 0.0) - func.coalesce(_of.judge_ms, 0.0)
LATENCIES: Mapping[str, ColumnElement[Any]] = {
    "total": _of.total_ms,
    "upstream": _of.upstream_ms,
    "judge": _of.judge_ms,
    "gateway": case((_rest > 0.0, _rest), else_=0.0),
}


async def count_requests(
    connection: AsyncConnection, dialect: str, filter: EventFilter, by: By, found: dict[Group, RequestStats]
) -> None:
    """Count the requests that match ``filter``, and add them to ``found`` by group."""
    query, groups = _grouped(dialect, filter, by)
    kinds = [_unindexed(_of.action), _of.verdict, _of.status]
    query = query.add_columns(*kinds, *_sums()).group_by(*groups, *kinds)
    for row in await connection.execute(query):
        numbers = found.setdefault(group_of(row[: len(groups)]), RequestStats())
        action, verdict, status, count, prompt, completion, trusted, trust, *times = row[len(groups) :]
        numbers.requests += count
        numbers.actions[action] += count
        numbers.verdicts[verdict] += count
        numbers.statuses[status] += count
        # PostgreSQL sums large integers as decimals.
        numbers.prompt_tokens += int(prompt or 0)
        numbers.completion_tokens += int(completion or 0)
        numbers.trust_count += trusted
        numbers.trust_sum += trust or 0.0
        for place, part in enumerate(LATENCIES):
            if times[3 * place]:
                numbers.times.setdefault(part, LatencyStats()).add(*times[3 * place : 3 * place + 3])


async def request_percentiles(
    connection: AsyncConnection, dialect: str, filter: EventFilter, by: By, found: dict[Group, RequestStats]
) -> None:
    """Set the percentiles of the groups in ``found``."""
    query, groups = _grouped(dialect, filter, by)
    for part, value in LATENCIES.items():
        values = query.add_columns(value.label("value")).where(value.is_not(None))
        for *group, percentiles in _read(await connection.execute(_percentiles(values)), groups):
            found[group_of(group)].latency_ms[part] = percentiles


def group_of(key: Sequence[Any]) -> Group:
    """Return the group of a row. An empty name is treated as no name."""
    return (key[0] or None if isinstance(key[0], str) else key[0]) if key else None


async def count_decisions(
    connection: AsyncConnection, filter: EventFilter, names: Sequence[str], found: dict[tuple[Any, ...], DecisionStats]
) -> None:
    """Count the decisions that match ``filter``, grouped by the columns ``names``, and add the counts to ``found``."""
    keys = [_key(name) for name in names]
    kinds = [*keys, _unindexed(decisions.c.action), _unindexed(decisions.c.reason_code)]
    query = decisions_matching(filter, *kinds, func.count()).group_by(*kinds)
    for *of, action, reason_code, count in await connection.execute(query):
        decided = found.setdefault(tuple(of), DecisionStats(of=dict(zip(names, of, strict=True))))
        decided.add(action, reason_code, count)


async def decision_percentiles(
    connection: AsyncConnection, filter: EventFilter, names: Sequence[str], found: dict[tuple[Any, ...], DecisionStats]
) -> None:
    """Set the percentiles of the groups in ``found``."""
    keys = [_key(name) for name in names]
    values = decisions_matching(filter, *keys, decisions.c.latency_ms.label("value"))
    for *of, percentiles in _read(await connection.execute(_percentiles(values)), keys):
        found[tuple(of)].latency_ms = percentiles


async def names_of_policies(connection: AsyncConnection, filter: EventFilter) -> dict[str, str]:
    """Return the name of each policy, by id."""
    query = decisions_matching(filter, decisions.c.policy_id, func.max(decisions.c.policy_name))
    return {row[0]: row[1] for row in await connection.execute(query.group_by(decisions.c.policy_id))}


def _grouped(dialect: str, filter: EventFilter, by: By) -> tuple[Select[Any], list[ColumnElement[Any]]]:
    """Build a query that groups the matching requests. Also return the columns to group by (none or one)."""
    match by:
        case None:
            return requests_matching(filter), []
        case "policy":
            asked = select(decisions.c.request_id, decisions.c.ts, decisions.c.policy_id).distinct()
            asked = asked.where(*within(filter, decisions.c.ts))
            if filter.policy is not None:
                asked = asked.where(decisions.c.policy_id == filter.policy)
            by_policy = asked.subquery()
            group: ColumnElement[Any] = by_policy.c.policy_id
            same = and_(by_policy.c.request_id == _of.request_id, by_policy.c.ts == _of.ts)
            query = requests_matching(filter, group.label("group"))
            return query.select_from(requests.join(by_policy, same)), [group]
        case int():
            group = epoch(dialect, _of.ts, by)
        case _:
            group = _unindexed(_of[by])
    return requests_matching(filter, group.label("group")), [group]


def _unindexed(text: ColumnElement[Any]) -> ColumnElement[Any]:
    """Wrap a string column for grouping and replace null with "". Without this, SQLite scans the column's whole index
    to avoid sorting, even if the time range has few rows."""
    return func.coalesce(text, literal_column("''")).label(str(text.key))


def _key(name: str) -> ColumnElement[Any]:
    column = decisions.c[name]
    return column if name == "shadow" else _unindexed(column)


def epoch(dialect: str, time: ColumnElement[Any], step: int) -> ColumnElement[Any]:
    """Convert ``time`` to seconds since 1970, rounded down to a multiple of ``step``."""
    if dialect == "sqlite":
        # Drop the fraction, because SQLite would round up.
        seconds: ColumnElement[Any] = cast(func.strftime("%s", func.substr(time, 1, 19)), Integer)
    else:
        seconds = cast(func.floor(extract("epoch", time)), BigInteger)
    return seconds - seconds % step


def _sums() -> list[ColumnElement[Any]]:
    times = [each(value) for value in LATENCIES.values() for each in (func.count, func.sum, func.max)]
    trust = func.count(_of.trust_score), func.sum(_of.trust_score)
    return [func.count(), func.sum(_of.prompt_tokens), func.sum(_of.completion_tokens), *trust, *times]


def _percentiles(values: Select[Any]) -> Select[Any]:
    """Build a query for the percentiles (nearest rank) of the column ``value`` in each group. It uses window functions,
    because SQLite has no percentile functions."""
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
        for percent in PERCENT
    ]
    query = select(*shown, *wanted, func.max(ranked.c.value).label("max"))
    return query.group_by(*shown) if shown else query


def _read(rows: Any, groups: Sequence[Any]) -> list[tuple[Any, ...]]:
    """For each row, return its groups followed by its percentiles by name. Rows without values are omitted."""
    names = [f"p{percent}" for percent in PERCENT] + ["max"]
    return [
        (*row[: len(groups)], {name: round(value, 3) for name, value in zip(names, row[len(groups) :], strict=True)})
        for row in rows
        if row[-1] is not None
    ]
