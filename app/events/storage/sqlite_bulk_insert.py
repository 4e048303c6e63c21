"""Bulk inserts into SQLite. Values are encoded here, because SQLAlchemy's encoding costs several times as much as the
insert itself."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any

import orjson
from sqlalchemy import Connection, Table
from sqlalchemy.dialects import sqlite

from app.db.tables import Json, UTCDateTime

_KNOWN = "SELECT request_id FROM requests WHERE request_id IN (SELECT value FROM json_each(?))"

_ROWS_AT_ONCE = 500
"""The number of rows to insert at a time. If all rows of a long reply were inserted at once, garbage collection of
their values would block the event loop."""

Row = Mapping[str, Any]


def insert_rows(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert ``rows``, which must all have the same columns. Existing rows are skipped."""
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        statement, values_of, encoders = _prepared(table, tuple(rows[0]))
        values = [[*values_of(row)] for row in rows[start : start + _ROWS_AT_ONCE]]
        for place, encode in encoders:
            for row in values:
                row[place] = encode(row[place])
        connection.exec_driver_sql(statement, [*map(tuple, values)])


def known_requests(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Return those of ``ids`` that are in the event log."""
    return set(connection.exec_driver_sql(_KNOWN, (orjson.dumps(ids).decode(),)).scalars())


@lru_cache(maxsize=64)
def _prepared(
    table: Table, names: tuple[str, ...]
) -> tuple[str, Callable[[Row], tuple[Any, ...]], Sequence[tuple[int, Callable[[Any], Any]]]]:
    """Return the statement, a function that extracts its parameters from a row, and the parameter encoders by
    position."""
    insert = sqlite.insert(table).on_conflict_do_nothing()
    compiled = insert.compile(dialect=sqlite.dialect(paramstyle="qmark"), column_keys=names)
    order = names if compiled.positiontup is None else compiled.positiontup
    encoders = [(place, encode) for place, name in enumerate(order) if (encode := _encoder(table, name)) is not None]
    return str(compiled), itemgetter(*order), encoders


def _encoder(table: Table, name: str) -> Callable[[Any], Any] | None:
    """Return the encoder for a column, or None. The encoding matches that of SQLAlchemy's types, which read the
    values."""
    kind = table.c[name].type
    if isinstance(kind, UTCDateTime):
        return _stamp
    return _json if kind is Json else None


@lru_cache(maxsize=1024)  # All rows of an event have the same time.
def _stamp(value: datetime | None) -> str | None:
    return None if value is None else value.astimezone(UTC).isoformat(" ", "microseconds")[:26]


def _json(value: Any) -> str | None:
    return None if value is None else orjson.dumps(value).decode()
