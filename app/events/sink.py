"""Rows into the database: a batch in one transaction, nothing twice, and no bad event at the cost of the others."""

from collections.abc import Sequence

import structlog
from sqlalchemy.exc import ProgrammingError, SQLAlchemyError

from app.db import Database, DatabaseUnavailableError
from app.events.rows import Rows
from app.tables import EVENT_TABLES

_log = structlog.stdlib.get_logger(__name__)
_ROWS_AT_ONCE = 100


async def store(database: Database, batch: Sequence[Rows]) -> list[Rows]:
    """Store ``batch`` and return those events that the database refuses for what is in them. Rows that are there
    already are left out. Raises DatabaseUnavailableError, and then a part of the batch may be stored.
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
    try:
        async with database.write() as connection:
            for table in EVENT_TABLES:
                rows = [row for event in batch for row in event[table.name]]
                # In pieces, because the event loop stands still while the parameters of one are made ready.
                for start in range(0, len(rows), _ROWS_AT_ONCE):
                    await connection.execute(database.insert_ignore(table), rows[start : start + _ROWS_AT_ONCE])
    except ProgrammingError as error:
        # A table or column is missing: it is the database that is not as it should be, not the event.
        raise DatabaseUnavailableError(str(error.orig)) from error
