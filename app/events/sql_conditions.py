"""Builds the conditions of SQL queries from a filter."""

from datetime import datetime
from operator import eq
from typing import Any

from sqlalchemy import BinaryExpression, ColumnElement, Select, Table, UnaryExpression, exists, select, tuple_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import custom_op

from app.db.tables import UTCDateTime, decisions, requests
from app.events.filters import EventFilter


def requests_matching(filter: EventFilter, *columns: ColumnElement[Any], without_index: bool = False) -> Select[Any]:
    """Build an unordered query for ``columns`` of the requests that match ``filter``. The filter's ``id_prefix`` and
    ``text`` are ignored. With ``without_index``, SQLite doesn't use the indexes on the columns that the filter compares
    for equality, such as ``agent``."""
    conditions = [*shared_conditions(filter, requests), *_request_conditions(filter)]
    query = select(*columns).where(*(_without_index(each) if without_index else each for each in conditions))
    if on_decisions := decision_conditions(filter):
        same = decisions.c.request_id == requests.c.request_id, decisions.c.ts == requests.c.ts
        query = query.where(exists().where(*same, *within(filter, _Pruned(decisions.c.ts)), *on_decisions))
    return query


class _Pruned(FunctionElement[Any]):
    """A time column whose conditions serve only to prune partitions on PostgreSQL. SQLite must not use the index on the
    column: for each request, it would search all times that meet the conditions rather than only the request's own
    time."""

    type = UTCDateTime()
    inherit_cache = True


@compiles(_Pruned)
def _as_it_is(element: _Pruned, compiler: Any, **options: Any) -> str:
    return str(compiler.process(element.clauses, **options))


@compiles(_Pruned, "sqlite")
def _without_its_index(element: _Pruned, compiler: Any, **options: Any) -> str:
    return f"+{compiler.process(element.clauses, **options)}"


def decisions_matching(filter: EventFilter, *columns: ColumnElement[Any]) -> Select[Any]:
    """Build an unordered query for ``columns`` of the decisions that match ``filter``."""
    return select(*columns).where(*shared_conditions(filter, decisions), *decision_conditions(filter))


def within(filter: EventFilter, ts: ColumnElement[Any]) -> list[ColumnElement[bool]]:
    """Build the conditions that ``filter`` sets on the time column ``ts``. Joined tables need these conditions too,
    because PostgreSQL prunes a table's partitions only if there are conditions on that table."""
    wanted = []
    if filter.since is not None:
        wanted.append(ts >= filter.since)
    if filter.until is not None:
        wanted.append(ts < filter.until)
    return wanted


def before_key(
    after: tuple[datetime, str], ts: ColumnElement[Any], id: ColumnElement[Any]
) -> list[ColumnElement[bool]]:
    """Build the conditions for the rows after the key ``after``, when rows are sorted newest first."""
    # The second condition is sufficient; the first lets PostgreSQL prune partitions.
    return [ts <= after[0], tuple_(ts, id) < tuple_(*after, types=[ts.type, id.type])]


def _without_index(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Rewrite an equality so that SQLite can't use an index for it."""
    if not isinstance(condition, BinaryExpression) or condition.operator is not eq:
        return condition
    column = condition.left
    return UnaryExpression(column, operator=custom_op("+"), type_=column.type) == condition.right


def shared_conditions(filter: EventFilter, table: Table) -> list[ColumnElement[bool]]:
    """Build the conditions on the columns that requests and decisions have in common."""
    columns = table.c
    wanted = [
        columns[name] == value
        for name in ("agent", "model", "run_id", "action")
        if (value := getattr(filter, name)) is not None
    ]
    return wanted + within(filter, columns.ts)


def _request_conditions(filter: EventFilter) -> list[ColumnElement[bool]]:
    columns = requests.c
    named = {name: getattr(filter, name) for name in ("verdict", "status", "key_prefix")}
    wanted = [columns[name] == value for name, value in named.items() if value is not None]
    for column, low, high in (
        (columns.total_ms, filter.min_ms, filter.max_ms),
        (columns.trust_score, filter.min_trust, filter.max_trust),
    ):
        wanted += [column >= low] if low is not None else []
        wanted += [column <= high] if high is not None else []
    return wanted


def decision_conditions(filter: EventFilter) -> list[ColumnElement[bool]]:
    """Build the conditions on the columns that only decisions have."""
    wanted = {
        "policy_id": filter.policy,
        "phase": filter.phase,
        "reason_code": filter.reason_code,
        "shadow": filter.shadow,
    }
    return [decisions.c[name] == value for name, value in wanted.items() if value is not None]
