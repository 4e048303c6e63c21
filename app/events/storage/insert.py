"""Inserts events, one batch per transaction. No event is stored twice, and an invalid event doesn't affect the
others."""

import asyncio
from collections.abc import Iterator, Sequence

import structlog
from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import ProgrammingError, SQLAlchemyError

from app.db.database import Database, DatabaseUnavailableError
from app.db.search_index import add_entries
from app.db.tables import EVENT_TABLES, requests
from app.events.rollups.rollup_update import add_to_rollups
from app.events.search.indexed_text import search_text
from app.events.serialization import Rows
from app.events.storage.sqlite_bulk_insert import insert_rows, known_requests

_log = structlog.stdlib.get_logger(__name__)
_ROWS_AT_ONCE = 100


async def store(database: Database, batch: Sequence[Rows]) -> list[Rows]:
    """Store ``batch``, and return the events whose content the database rejects. Rows that already exist are skipped.

    Raises DatabaseUnavailableError. In that case, part of the batch may already be stored.
    """
    try:
        await _insert(database, batch)
    except SQLAlchemyError as error:
        if len(batch) == 1:
            _log.error("event_refused", request_id=batch[0]["requests"][0]["request_id"], error=type(error).__name__)
            return list(batch)
    else:
        return []
    return [refused for rows in batch for refused in await store(database, [rows])]


async def _insert(database: Database, batch: Sequence[Rows]) -> None:
    texts = await asyncio.to_thread(_search_texts, batch)

    def insert(connection: Connection) -> None:
        added = (_insert_sqlite if database.dialect == "sqlite" else _insert_postgresql)(connection, batch)
        events = list(_added(batch, added))
        add_to_rollups(connection, events)
        ids = [(event["requests"][0]["request_id"], event["requests"][0]["ts"]) for event in events]
        add_entries(connection, [(id, ts, texts[id]) for id, ts in ids if id in texts])

    try:
        await database.transact(insert)
    except ProgrammingError as error:
        # A table or column is missing: the database is at fault, not the event.
        raise DatabaseUnavailableError(str(error.orig)) from error


def _search_texts(batch: Sequence[Rows]) -> dict[str, str]:
    """Return the words to index for each request whose text is stored. Call this in a thread."""
    found = ((event["requests"][0]["request_id"], search_text(event)) for event in batch)
    return {request_id: text for request_id, text in found if text is not None}


def _insert_sqlite(connection: Connection, batch: Sequence[Rows]) -> set[str]:
    """Insert ``batch``, and return the ids of the new requests."""
    ids = [event["requests"][0]["request_id"] for event in batch]
    known = known_requests(connection, ids)
    for table in EVENT_TABLES:
        insert_rows(connection, table, [row for event in batch for row in event[table.name]])
    return set(ids).difference(known)


def _insert_postgresql(connection: Connection, batch: Sequence[Rows]) -> set[str]:
    added: set[str] = set()
    for table in EVENT_TABLES:
        statement = postgresql.insert(table).on_conflict_do_nothing()
        rows = [row for event in batch for row in event[table.name]]
        # Insert in pieces, because preparing a statement's parameters blocks the event loop.
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            piece = rows[start : start + _ROWS_AT_ONCE]
            if table is requests:
                added.update(connection.execute(statement.returning(requests.c.request_id), piece).scalars())
            else:
                connection.execute(statement, piece)
    return added


def _added(batch: Sequence[Rows], ids: set[str]) -> Iterator[Rows]:
    """Yield the events whose requests are among ``ids``, without duplicates."""
    for event in batch:
        if (request_id := event["requests"][0]["request_id"]) in ids:
            ids.remove(request_id)
            yield event
