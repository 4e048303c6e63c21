"""Rows into SQLite, many at once: values are made ready by hand, because SQLAlchemy's care for each costs several times
what the database does for them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import Connection, Table, select
from sqlalchemy.dialects import sqlite

from app.tables import Json, UTCDateTime, requests

_AT_ONCE = 500
"""Ids in one query; SQLite takes some thousands of parameters at least."""

Row = Mapping[str, Any]


def insert_rows(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert ``rows``, which all name the same columns; those that are there already are left out."""
    if rows:
        statement, encoders = _prepared(table, tuple(rows[0]))
        values = [tuple(encode(row[name]) if encode else row[name] for name, encode in encoders) for row in rows]
        connection.exec_driver_sql(statement, values)


def known_requests(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Those of ``ids`` whose requests are in the event log."""
    known: set[str] = set()
    for start in range(0, len(ids), _AT_ONCE):
        piece = ids[start : start + _AT_ONCE]
        known.update(
            connection.execute(select(requests.c.request_id).where(requests.c.request_id.in_(piece))).scalars()
        )
    return known


@lru_cache(maxsize=64)
def _prepared(table: Table, names: tuple[str, ...]) -> tuple[str, Sequence[tuple[str, Callable[[Any], Any] | None]]]:
    """The statement, and in the order of its parameters the columns, each with what makes its values ready."""
    insert = sqlite.insert(table).on_conflict_do_nothing()
    compiled = insert.compile(dialect=sqlite.dialect(paramstyle="qmark"), column_keys=names)
    order = names if compiled.positiontup is None else compiled.positiontup
    return str(compiled), [(name, _encoder(table, name)) for name in order]


def _encoder(table: Table, name: str) -> Callable[[Any], Any] | None:
    """As SQLAlchemy's own types write to SQLite, so that they can read it."""
    kind = table.c[name].type
    if isinstance(kind, UTCDateTime):
        return _stamp
    return _json if kind is Json else None


def _stamp(value: datetime | None) -> str | None:
    return None if value is None else value.astimezone(UTC).isoformat(" ", "microseconds")[:26]


def _json(value: Any) -> str | None:
    return None if value is None else orjson.dumps(value).decode()
