"""The full-text index of the event log: an FTS5 table on SQLite, and a table with a ``tsvector`` on PostgreSQL.

Both are named ``request_search`` and have an entry for each request whose text is stored. The code that inserts and
deletes events also updates the index, in the same transaction. Triggers aren't used, because they would have to read
the rows of each request again.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import orjson
from sqlalchemy import Column, ColumnElement, Connection, Index, String, Table, Text, bindparam, delete, func, insert
from sqlalchemy.dialects.postgresql import TSVECTOR

from app.db.tables import EVENT_TABLES, ONE_DIALECT, UTCDateTime, metadata

Entry = tuple[str, datetime, str]
"""The id of a request, its time, and its words, separated by spaces."""

PER_MICROSECOND = 1_024
"""On SQLite, the row id of an entry is its time in microseconds times this number, plus its position among the entries
of that microsecond. FTS5 therefore returns entries in time order, and reads only those in the requested time range."""
_EPOCH, _TICK = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_LARGEST = 2**62
_AT_ONCE = 100
"""The maximum number of entries per statement. It is low because preparing a statement's parameters blocks the event
loop."""

CONFIGURATION = "simple"
"""The text search configuration. It leaves the words unchanged, because they are already prepared; see
``app.events.search.indexed_text``."""

request_search = Table(
    "request_search",
    metadata,
    Column("ts", UTCDateTime, primary_key=True),
    Column("request_id", String, primary_key=True),
    Column("body", Text().with_variant(TSVECTOR(), "postgresql"), nullable=False),
    Index(None, "body", postgresql_using="gin"),
    info={ONE_DIALECT: "postgresql"},
)

PARTITIONED = (*EVENT_TABLES, request_search)
"""The tables that PostgreSQL partitions by the request's time."""

# The next free row id is looked up by key in the table where FTS5 stores the columns.
_INSERT_SQLITE = """
INSERT OR IGNORE INTO request_search (rowid, request_id, body)
SELECT coalesce((SELECT max(id) + 1 FROM request_search_content WHERE id >= ?1 AND id < ?2), ?1), ?3, ?4
"""
_DELETE_SQLITE = """
DELETE FROM request_search
WHERE rowid >= ? AND rowid < ? AND request_id IN (SELECT value FROM json_each(?))
"""


def row_id(ts: datetime) -> int:
    """Return the smallest row id that an entry with the time ``ts`` can have on SQLite."""
    return max(-_LARGEST, min(_LARGEST, (ts - _EPOCH) // _TICK * PER_MICROSECOND))


def time_of(row_id: int) -> datetime:
    """Return the time of the entry with this row id on SQLite."""
    return _EPOCH + row_id // PER_MICROSECOND * _TICK


def words_of(body: ColumnElement[str]) -> ColumnElement[str]:
    """Build the PostgreSQL expression that indexes prepared words."""
    return func.to_tsvector(CONFIGURATION, body)


_INSERT_POSTGRESQL = insert(request_search).values(
    request_id=bindparam("id"), ts=bindparam("at"), body=words_of(bindparam("words", type_=Text))
)


def add_entries(connection: Connection, entries: Sequence[Entry]) -> None:
    """Add the entries of newly stored requests."""
    if connection.dialect.name == "sqlite":
        rows = [(row_id(ts), row_id(ts) + PER_MICROSECOND, id, body) for id, ts, body in entries]
        if rows:
            connection.exec_driver_sql(_INSERT_SQLITE, rows)
        return
    for start in range(0, len(entries), _AT_ONCE):
        piece = [{"id": id, "at": ts, "words": body} for id, ts, body in entries[start : start + _AT_ONCE]]
        connection.execute(_INSERT_POSTGRESQL, piece)


def delete_entries(connection: Connection, ids: Sequence[str], since: datetime, until: datetime) -> None:
    """Delete the entries of requests. ``since`` and ``until`` are the times of the first and the last request."""
    if connection.dialect.name == "sqlite":
        ends = row_id(since), row_id(until) + PER_MICROSECOND
        connection.exec_driver_sql(_DELETE_SQLITE, (*ends, orjson.dumps(ids).decode()))
    else:
        columns = request_search.c
        connection.execute(delete(request_search).where(columns.ts.between(since, until), columns.request_id.in_(ids)))
