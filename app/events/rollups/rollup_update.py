"""Updates the rollups in the same transaction that stores or deletes events."""

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
    usage_statistics,
)
from app.events.serialization import Rows

_ROWS_AT_ONCE = 25
"""The maximum number of rows per statement. A row has about a hundred numbers. Preparing the parameters of a larger
statement would block the event loop for too long."""

ROLLED_UP_COLUMNS = {
    "requests": (
        *("request_id", "ts", "agent", "model", "key_prefix", "action", "verdict", "status", "trust_score"),
        *("prompt_tokens", "completion_tokens", "total_ms", "upstream_ms", "judge_ms"),
    ),
    "decisions": (
        *("request_id", "policy_id", "policy_name", "shadow", "category", "phase", "action", "reason_code"),
        "latency_ms",
    ),
}
"""The columns that rollups are computed from, by table."""

Key = tuple[Any, ...]


class _Layout:
    """The column layout of a rollup table: ``step``, the other key columns, a name, and then the numbers."""

    def __init__(self, table: Table) -> None:
        names = [column.name for column in table.c if not column.primary_key and column.name != "policy_name"]
        self.table, self.size = table, len(names)
        self.place = {name: number for number, name in enumerate(names)}
        self.largest = [number for name, number in self.place.items() if name.endswith("_max")]


_OF_REQUESTS, _OF_DECISIONS = _Layout(request_statistics), _Layout(decision_statistics)
_OF_USAGE = _Layout(usage_statistics)


class _Sums:
    """Increments for the rows of one table. They are stored by the row's key, without the column ``step``."""

    def __init__(self, layout: _Layout) -> None:
        self.layout = layout
        self.rows: dict[Key, list[float]] = {}
        self.names: dict[Key, tuple[str, ...]] = {}

    def add(self, key: Key, *name: str) -> list[float]:
        """Add a row of zeros and return it."""
        row = self.rows[key] = [0] * self.layout.size
        self.names[key] = name
        return row

    def days(self) -> "_Sums":
        """Return the same increments, summed by day."""
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

    def rows_of(self, step: int) -> list[tuple[Any, ...]]:
        """Convert the increments to rows of the table, sorted by key so that all writers lock rows in the same
        order."""
        return [(step, *key, *self.names[key], *self.rows[key]) for key in sorted(self.rows)]


_VERDICTS = {verdict: _OF_REQUESTS.place[f"verdict_{verdict}"] for verdict in VERDICTS}
_STATUSES = {status: _OF_REQUESTS.place[f"status_{status}"] for status in STATUSES}
_TRUST_COUNT, _TRUST = (_OF_REQUESTS.place[name] for name in ("trust_count", "trust_sum"))
_DECISIONS = _OF_DECISIONS.place["decisions"]


def increments(events: Iterable[Rows], sign: int = 1) -> list[tuple[Table, list[tuple[Any, ...]]]]:
    """Compute the rows to add to each rollup table for ``events``. With a ``sign`` of -1, compute the rows to
    subtract."""
    of_requests: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    of_decisions: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    of_usage: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        row = event["requests"][0]
        start = row["ts"].replace(minute=0, second=0, microsecond=0)
        names = key_of(row["agent"]), key_of(row["model"])
        for policy in {NONE, *(decision["policy_id"] for decision in event["decisions"])}:
            of_requests[start, policy, *names, row["action"]].append(row)
            of_usage[start, policy, *names, key_of(row["key_prefix"])].append(row)
        for decision in event["decisions"]:
            of_decisions[_decision_key(start, decision, names)].append(decision)
    requests, decisions, usage = _Sums(_OF_REQUESTS), _Sums(_OF_DECISIONS), _Sums(_OF_USAGE)
    for key, rows in of_requests.items():
        _count_requests(requests.add(key), rows, sign)
    for key, rows in of_decisions.items():
        numbers = decisions.add(key, rows[-1]["policy_name"])
        numbers[_DECISIONS] = sign * len(rows)
        _count_times(_OF_DECISIONS, numbers, "latency", [row["latency_ms"] for row in rows], sign)
    for key, rows in of_usage.items():
        _count_usage(_OF_USAGE, usage.add(key), rows, sign)
    return [
        (sums.layout.table, found)
        for sums in (requests, decisions, usage)
        if (found := [*sums.rows_of(HOUR), *sums.days().rows_of(DAY)])
    ]


def _count_requests(numbers: list[float], rows: Sequence[Mapping[str, Any]], sign: int) -> None:
    _count_usage(_OF_REQUESTS, numbers, rows, sign)
    for name, places in (("verdict", _VERDICTS), ("status", _STATUSES)):
        for value, count in Counter(row[name] for row in rows).items():
            # If this version doesn't know a value, the request is still counted, but not under that value.
            if value in places:
                numbers[places[value]] = sign * count
    trust = [row["trust_score"] for row in rows if row["trust_score"] is not None]
    numbers[_TRUST_COUNT], numbers[_TRUST] = sign * len(trust), sign * sum(trust)
    times = [(row["total_ms"], row["upstream_ms"], row["judge_ms"]) for row in rows]
    rests = [max(0.0, total - (upstream or 0.0) - (judge or 0.0)) for total, upstream, judge in times]
    for part, values in zip(PARTS, (*zip(*times, strict=True), rests), strict=True):
        _count_times(_OF_REQUESTS, numbers, part, [value for value in values if value is not None], sign)


def _count_usage(layout: _Layout, numbers: list[float], rows: Sequence[Mapping[str, Any]], sign: int) -> None:
    numbers[layout.place["requests"]] = sign * len(rows)
    for name in ("prompt_tokens", "completion_tokens"):
        numbers[layout.place[name]] = sign * sum(row[name] or 0 for row in rows)


def _decision_key(start: datetime, row: Mapping[str, Any], agent_and_model: tuple[str, str]) -> Key:
    columns = "policy_id", "shadow", "category", "phase", "action"
    return (start, *(row[name] for name in columns), row["reason_code"] or NONE, *agent_and_model)


def _count_times(layout: _Layout, numbers: list[float], part: str, values: Sequence[float], sign: int) -> None:
    if not values:
        return
    place = layout.place
    numbers[place[f"{part}_count"]] = sign * len(values)
    numbers[place[f"{part}_ms"]] = sign * sum(values)
    # Subtraction can't restore an earlier maximum, so it leaves the maximum unchanged.
    numbers[place[f"{part}_max"]] = max(values) if sign > 0 else 0.0
    for bin, count in Counter(map(bin_of, values)).items():
        numbers[place[f"{part}_{bin:02d}"]] = sign * count


def add_to_rollups(connection: Connection, events: Iterable[Rows]) -> None:
    """Add newly stored ``events`` to the rollups."""
    _change(connection, increments(events))


def subtract_from_rollups(connection: Connection, events: Iterable[Rows]) -> None:
    """Subtract deleted ``events`` from the rollups. Only their ``requests`` and ``decisions`` rows are needed. The
    maximum latency of an hour or day stays the same as long as other events remain in it."""
    changes = increments(events, -1)
    _change(connection, changes)
    for table, rows in changes:
        for piece in _pieces(rows):
            names = [f"{column.name}_" for column in table.primary_key]
            keys = [dict(zip(names, row, strict=False)) for row in piece]
            connection.execute(_DELETE_EMPTY[table], keys)


def _change(connection: Connection, changes: Iterable[tuple[Table, list[tuple[Any, ...]]]]) -> None:
    dialect = connection.dialect
    for table, rows in changes:
        for piece in _pieces(rows):
            if dialect.name == "sqlite":
                # SQLAlchemy's own type stores times in this format.
                piece = [(row[0], f"{row[1]:%Y-%m-%d %H:%M:%S.%f}", *row[2:]) for row in piece]
            connection.exec_driver_sql(_statement(dialect, table), piece)


def _pieces(rows: list[tuple[Any, ...]]) -> Iterable[list[tuple[Any, ...]]]:
    return (rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE))


@lru_cache(maxsize=16)
def _statement(dialect: Dialect, table: Table) -> str:
    """Compile the statement to text once. SQLAlchemy's own cache would be slow: it compares statements part by part,
    and this statement has hundreds of parts."""
    return str(_adding(dialect.name, table).compile(dialect=dialect))


def _adding(dialect: str, table: Table) -> Any:
    """Build an INSERT that adds the new numbers to those of an existing row."""
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


def _delete_empty(table: Table) -> Any:
    counted = table.c.decisions if table is decision_statistics else table.c.requests
    return delete(table).where(
        and_(*(column == bindparam(f"{column.name}_") for column in table.primary_key)), counted <= 0
    )


_DELETE_EMPTY = {table: _delete_empty(table) for table in STATISTICS}
