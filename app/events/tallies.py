"""Counting ahead: what events add to the rows of the statistics, in the transaction that stores or deletes them."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Connection, Table, and_, bindparam, case, delete, func
from sqlalchemy.dialects import postgresql, sqlite

from app.events.rows import Rows
from app.statistics_tables import (
    DAY,
    HOUR,
    NONE,
    PARTS,
    STATISTICS,
    STATUSES,
    VERDICTS,
    bin_of,
    decision_statistics,
    key_of,
    request_statistics,
)

_ROWS_AT_ONCE = 25
"""A row has some hundred numbers, and the event loop may stand still while those of one statement are made ready."""

COUNTED = {
    "requests": (
        *("request_id", "ts", "agent", "model", "action", "verdict", "status", "trust_score"),
        *("prompt_tokens", "completion_tokens", "total_ms", "upstream_ms", "judge_ms"),
    ),
    "decisions": (
        *("request_id", "policy_id", "policy_name", "shadow", "category", "phase", "action", "reason_code"),
        "latency_ms",
    ),
}
"""The columns that are counted, by table."""

Key = tuple[Any, ...]


class _Sums:
    """Rows of one table that is to be added to, by key: its columns from ``start`` on, without ``step``."""

    def __init__(self, table: Table) -> None:
        keys = [column.name for column in table.primary_key]
        self.table, self.keys = table, keys[1:]
        self.values = [column.name for column in table.c if column.name not in keys]
        self.place = {name: number for number, name in enumerate(self.values)}
        self.largest = frozenset(number for name, number in self.place.items() if name.endswith("_max"))
        self.name = self.place.get("policy_name")
        self.rows: dict[Key, list[Any]] = {}

    def add(self, key: Key, numbers: Iterable[tuple[int, Any]]) -> None:
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = [0] * len(self.values)
        for place, number in numbers:
            if place in self.largest:
                row[place] = max(row[place], number)
            elif place == self.name:
                row[place] = number
            else:
                row[place] += number

    def days(self) -> "_Sums":
        """The same by day."""
        found = _Sums(self.table)
        for (start, *rest), row in self.rows.items():
            found.add((start.replace(hour=0), *rest), enumerate(row))
        return found

    def told(self, step: int) -> list[dict[str, Any]]:
        """As parameters, in the order of their keys: whoever adds takes the rows in the same order as others do."""
        return [
            {"step": step, **dict(zip(self.keys, key, strict=True)), **dict(zip(self.values, row, strict=True))}
            for key, row in sorted(self.rows.items(), key=lambda item: item[0])
        ]


_OF_REQUESTS, _OF_DECISIONS = _Sums(request_statistics).place, _Sums(decision_statistics).place
_TOKENS = ("prompt_tokens", "completion_tokens")
_VERDICTS = {verdict: _OF_REQUESTS[f"verdict_{verdict}"] for verdict in VERDICTS}
_STATUSES = {status: _OF_REQUESTS[f"status_{status}"] for status in STATUSES}


def tally(events: Iterable[Rows], sign: int = 1) -> list[tuple[Table, list[dict[str, Any]]]]:
    """What ``events`` add to each table of statistics; with a ``sign`` of -1, what is to be taken away."""
    requests, decisions = _Sums(request_statistics), _Sums(decision_statistics)
    for event in events:
        row = event["requests"][0]
        start = row["ts"].replace(minute=0, second=0, microsecond=0)
        of = key_of(row["agent"]), key_of(row["model"])
        numbers = _request(row, sign)
        for policy in {NONE, *(decision["policy_id"] for decision in event["decisions"])}:
            requests.add((start, policy, *of, row["action"]), numbers)
        for decision in event["decisions"]:
            decisions.add(_kind(start, decision, of), _decision(decision, sign))
    return [
        (sums.table, rows) for sums in (requests, decisions) if (rows := [*sums.told(HOUR), *sums.days().told(DAY)])
    ]


def _request(row: Mapping[str, Any], sign: int) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = [(_OF_REQUESTS["requests"], sign)]
    found += [(_OF_REQUESTS[name], sign * row[name]) for name in _TOKENS if row[name]]
    # One that this version does not know is counted as a request all the same.
    found += [(place, sign) for place in (_VERDICTS.get(row["verdict"]), _STATUSES.get(row["status"])) if place]
    if (trust := row["trust_score"]) is not None:
        found += [(_OF_REQUESTS["trust_count"], sign), (_OF_REQUESTS["trust_sum"], sign * trust)]
    total, upstream, judge = row["total_ms"], row["upstream_ms"], row["judge_ms"]
    gateway = max(0.0, total - (upstream or 0.0) - (judge or 0.0))
    for part, value in zip(PARTS, (total, upstream, judge, gateway), strict=True):
        if value is not None:
            found += _latency(_OF_REQUESTS, part, value, sign)
    return found


def _kind(start: datetime, row: Mapping[str, Any], of: tuple[str, str]) -> Key:
    names = "policy_id", "shadow", "category", "phase", "action"
    return (start, *(row[name] for name in names), row["reason_code"] or NONE, *of)


def _decision(row: Mapping[str, Any], sign: int) -> list[tuple[int, Any]]:
    counted = (_OF_DECISIONS["policy_name"], row["policy_name"]), (_OF_DECISIONS["decisions"], sign)
    return [*counted, *_latency(_OF_DECISIONS, "latency", row["latency_ms"], sign)]


def _latency(place: Mapping[str, int], part: str, value: float, sign: int) -> list[tuple[int, Any]]:
    return [
        (place[f"{part}_count"], sign),
        (place[f"{part}_ms"], sign * value),
        # What was the longest of all cannot be told once it is taken away.
        (place[f"{part}_max"], value if sign > 0 else 0.0),
        (place[f"{part}_{bin_of(value):02d}"], sign),
    ]


def add(connection: Connection, events: Iterable[Rows]) -> None:
    """Count ``events``, which have just been stored."""
    _change(connection, tally(events))


def take_away(connection: Connection, events: Iterable[Rows]) -> None:
    """Undo the counting of ``events``, which are deleted; their first two tables are enough. The longest latency of an
    hour and a day stays what it was while there are others."""
    tallied = tally(events, -1)
    _change(connection, tallied)
    for table, rows in tallied:
        for piece in _pieces(rows):
            keys = [{f"{column.name}_": row[column.name] for column in table.primary_key} for row in piece]
            connection.execute(_EMPTIED[table], keys)


def _change(connection: Connection, tallied: Iterable[tuple[Table, list[dict[str, Any]]]]) -> None:
    for table, rows in tallied:
        for piece in _pieces(rows):
            connection.execute(_ADDING[connection.dialect.name][table], piece)


def _pieces(rows: list[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    return (rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE))


def _adding(dialect: str, table: Table) -> Any:
    """An INSERT that adds its numbers to those that are there."""
    insert: Any = sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
    larger = func.max if dialect == "sqlite" else func.greatest

    def sum_of(column: Column[Any]) -> Any:
        new = insert.excluded[column.name]
        if column.name == "policy_name":
            return case((insert.excluded.decisions > 0, new), else_=column)
        return larger(column, new) if column.name.endswith("_max") else column + new

    values = [column for column in table.c if not column.primary_key]
    return insert.on_conflict_do_update(
        index_elements=list(table.primary_key), set_={column.name: sum_of(column) for column in values}
    )


def _emptied(table: Table) -> Any:
    counted = table.c.requests if table is request_statistics else table.c.decisions
    return delete(table).where(
        and_(*(column == bindparam(f"{column.name}_") for column in table.primary_key)), counted <= 0
    )


# Made once: SQLAlchemy knows a statement again by its parts, and these have many.
_ADDING = {dialect: {table: _adding(dialect, table) for table in STATISTICS} for dialect in ("sqlite", "postgresql")}
_EMPTIED = {table: _emptied(table) for table in STATISTICS}
