"""Counting ahead: what events add to the rows of the statistics, in the transaction that stores or deletes them."""

import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Column, Connection, Dialect, Table, and_, bindparam, case, delete, func, literal_column
from sqlalchemy.dialects import postgresql, sqlite

from app.db.rollup_tables import (
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
from app.events.storage.serialization import Rows

_ROWS_AT_ONCE = 25
"""A row has some hundred numbers, and the event loop may stand still while those of one statement are made ready."""

ROLLED_UP_COLUMNS = {
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


class _Layout:
    """Where what stands in the rows of a table: ``step``, the rest of the key, a name, and from there on numbers."""

    def __init__(self, table: Table) -> None:
        names = [column.name for column in table.c if not column.primary_key and column.name != "policy_name"]
        self.table, self.size = table, len(names)
        self.place = {name: number for number, name in enumerate(names)}
        self.largest = [number for name, number in self.place.items() if name.endswith("_max")]


_OF_REQUESTS, _OF_DECISIONS = _Layout(request_statistics), _Layout(decision_statistics)


class _Sums:
    """Numbers that are to be added to the rows of one table, by their key without ``step``."""

    def __init__(self, layout: _Layout) -> None:
        self.layout = layout
        self.rows: dict[Key, list[float]] = {}
        self.names: dict[Key, tuple[str, ...]] = {}

    def add(self, key: Key, *name: str) -> list[float]:
        """A new row."""
        row = self.rows[key] = [0] * self.layout.size
        self.names[key] = name
        return row

    def days(self) -> "_Sums":
        """The same by day."""
        found = _Sums(self.layout)
        for (start, *rest), row in self.rows.items():
            key = (start.replace(hour=0), *rest)
            before = found.rows.get(key)
            found.names[key] = self.names[start, *rest]
            found.rows[key] = row
            if before is not None:
                found.rows[key] = [*map(operator.add, before, row)]
                for place in self.layout.largest:
                    found.rows[key][place] = max(before[place], row[place])
        return found

    def told(self, step: int) -> list[tuple[Any, ...]]:
        """As rows of the table, in the order of their keys: whoever adds comes by them in the same order."""
        return [(step, *key, *self.names[key], *self.rows[key]) for key in sorted(self.rows)]


_VERDICTS = {verdict: _OF_REQUESTS.place[f"verdict_{verdict}"] for verdict in VERDICTS}
_STATUSES = {status: _OF_REQUESTS.place[f"status_{status}"] for status in STATUSES}
_COUNT, _PROMPT, _COMPLETION, _TRUST_COUNT, _TRUST = (
    _OF_REQUESTS.place[name] for name in ("requests", "prompt_tokens", "completion_tokens", "trust_count", "trust_sum")
)
_DECISIONS = _OF_DECISIONS.place["decisions"]


def tally(events: Iterable[Rows], sign: int = 1) -> list[tuple[Table, list[tuple[Any, ...]]]]:
    """What ``events`` add to each table of statistics; with a ``sign`` of -1, what is to be taken away."""
    of_requests: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    of_decisions: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        row = event["requests"][0]
        start = row["ts"].replace(minute=0, second=0, microsecond=0)
        of = key_of(row["agent"]), key_of(row["model"])
        for policy in {NONE, *(decision["policy_id"] for decision in event["decisions"])}:
            of_requests[start, policy, *of, row["action"]].append(row)
        for decision in event["decisions"]:
            of_decisions[_kind(start, decision, of)].append(decision)
    requests, decisions = _Sums(_OF_REQUESTS), _Sums(_OF_DECISIONS)
    for key, rows in of_requests.items():
        _count_requests(requests.add(key), rows, sign)
    for key, rows in of_decisions.items():
        numbers = decisions.add(key, rows[-1]["policy_name"])
        numbers[_DECISIONS] = sign * len(rows)
        _count_times(_OF_DECISIONS, numbers, "latency", [row["latency_ms"] for row in rows], sign)
    return [
        (sums.layout.table, told)
        for sums in (requests, decisions)
        if (told := [*sums.told(HOUR), *sums.days().told(DAY)])
    ]


def _count_requests(numbers: list[float], rows: Sequence[Mapping[str, Any]], sign: int) -> None:
    numbers[_COUNT] = sign * len(rows)
    numbers[_PROMPT] = sign * sum(row["prompt_tokens"] or 0 for row in rows)
    numbers[_COMPLETION] = sign * sum(row["completion_tokens"] or 0 for row in rows)
    for name, places in (("verdict", _VERDICTS), ("status", _STATUSES)):
        for value, count in Counter(row[name] for row in rows).items():
            # One that this version does not know is counted as a request all the same.
            if value in places:
                numbers[places[value]] = sign * count
    trust = [row["trust_score"] for row in rows if row["trust_score"] is not None]
    numbers[_TRUST_COUNT], numbers[_TRUST] = sign * len(trust), sign * sum(trust)
    times = [(row["total_ms"], row["upstream_ms"], row["judge_ms"]) for row in rows]
    rests = [max(0.0, total - (upstream or 0.0) - (judge or 0.0)) for total, upstream, judge in times]
    for part, values in zip(PARTS, (*zip(*times, strict=True), rests), strict=True):
        _count_times(_OF_REQUESTS, numbers, part, [value for value in values if value is not None], sign)


def _kind(start: datetime, row: Mapping[str, Any], of: tuple[str, str]) -> Key:
    names = "policy_id", "shadow", "category", "phase", "action"
    return (start, *(row[name] for name in names), row["reason_code"] or NONE, *of)


def _count_times(layout: _Layout, numbers: list[float], part: str, values: Sequence[float], sign: int) -> None:
    if not values:
        return
    place = layout.place
    numbers[place[f"{part}_count"]] = sign * len(values)
    numbers[place[f"{part}_ms"]] = sign * sum(values)
    # What was the longest of all cannot be told once it is taken away.
    numbers[place[f"{part}_max"]] = max(values) if sign > 0 else 0.0
    for bin, count in Counter(map(bin_of, values)).items():
        numbers[place[f"{part}_{bin:02d}"]] = sign * count


def add_to_rollups(connection: Connection, events: Iterable[Rows]) -> None:
    """Count ``events``, which have just been stored."""
    _change(connection, tally(events))


def subtract_from_rollups(connection: Connection, events: Iterable[Rows]) -> None:
    """Undo the counting of ``events``, which are deleted; their first two tables are enough. The longest latency of an
    hour and a day stays what it was while there are others."""
    tallied = tally(events, -1)
    _change(connection, tallied)
    for table, rows in tallied:
        for piece in _pieces(rows):
            names = [f"{column.name}_" for column in table.primary_key]
            keys = [dict(zip(names, row, strict=False)) for row in piece]
            connection.execute(_EMPTIED[table], keys)


def _change(connection: Connection, tallied: Iterable[tuple[Table, list[tuple[Any, ...]]]]) -> None:
    dialect = connection.dialect
    for table, rows in tallied:
        for piece in _pieces(rows):
            if dialect.name == "sqlite":
                # As SQLAlchemy's own type writes a time there.
                piece = [(row[0], f"{row[1]:%Y-%m-%d %H:%M:%S.%f}", *row[2:]) for row in piece]
            connection.exec_driver_sql(_statement(dialect, table), piece)


def _pieces(rows: list[tuple[Any, ...]]) -> Iterable[list[tuple[Any, ...]]]:
    return (rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE))


@lru_cache(maxsize=16)
def _statement(dialect: Dialect, table: Table) -> str:
    """Made once, as text: SQLAlchemy knows a statement again by its parts, and this one has hundreds."""
    return str(_adding(dialect.name, table).compile(dialect=dialect))


def _adding(dialect: str, table: Table) -> Any:
    """An INSERT that adds its numbers to those that are there."""
    insert: Any = sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
    larger = func.max if dialect == "sqlite" else func.greatest

    def sum_of(column: Column[Any]) -> Any:
        new = insert.excluded[column.name]
        if column.name == "policy_name":
            return case((insert.excluded.decisions > literal_column("0"), new), else_=column)
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


_EMPTIED = {table: _emptied(table) for table in STATISTICS}
