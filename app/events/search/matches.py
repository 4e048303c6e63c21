"""Finds the requests whose stored text matches a search, newest first. The more matches are requested, the more a
search costs.

SQLite's FTS5 returns matches in time order. PostgreSQL's index has no order and doesn't support phrases: it can only
find all requests that contain the words. On PostgreSQL, the newest requests are therefore read first, to learn how
frequent matches are. If matches are frequent, reading more requests is cheaper than using the index. If matches are
rare, the index is cheaper. If a phrase is rare but its words are frequent, both are expensive, so the search stops and
reports how far back it has searched.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.search_index import CONFIGURATION, request_search, row_id, time_of
from app.events.search.search_query import Phrase, fts5_query, tsquery

_SQLITE = text(
    "SELECT rowid, request_id FROM request_search"
    " WHERE request_search MATCH :phrases AND rowid >= :first AND rowid < :last ORDER BY rowid DESC LIMIT :most"
)
FIRST_READ, MOST_READ = 2_000, 20_000
"""On PostgreSQL, the number of requests in the first read, and the maximum number of requests read by one call to
``next``."""
_COST_OF_READING = 2
"""The cost of comparing a request with the search, relative to the cost of fetching a request that the index has found.
"""
Match = tuple[str, datetime]
"""The id and time of a matching request."""
_EVERYTHING = 2**63 - 1
_SIZE = text(
    "SELECT sum(greatest(child.reltuples, 0)) FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid"
    " WHERE inhparent = 'request_search'::regclass"
)


class TextMatches:
    """Reads the matches of one search in batches, newest first. ``since`` is inclusive, and ``until`` is exclusive."""

    def __init__(
        self,
        connection: AsyncConnection,
        phrases: Sequence[Phrase],
        *,
        since: datetime | None,
        until: datetime | None,
    ) -> None:
        self._connection, self._phrases = connection, phrases
        self._since, self._until = since, until
        self._last: Any = None
        self._all: float | None = None
        self.over = not phrases
        """Whether there are no more matches."""
        self.reached: datetime | None = until
        """All matches that are at least as new as this time have been returned."""

    async def next(self, most: int) -> list[Match]:
        """Return about ``most`` further matches. Matches with the same time are never split between two calls, so the
        result may be a little longer than ``most``. If there are fewer than ``most`` and ``over`` is False, the search
        was stopped because it became too expensive."""
        if self.over:
            return []
        sqlite = self._connection.dialect.name == "sqlite"
        return await (self._from_fts5(most) if sqlite else self._from_postgresql(most))

    async def _from_fts5(self, most: int) -> list[Match]:
        if self._last is None:
            self._last = _EVERYTHING if self._until is None else row_id(self._until)
        first = -_EVERYTHING if self._since is None else row_id(self._since)
        found = await self._entries(first, most)
        self.over = len(found) < most
        if not self.over:
            found += await self._entries(row_id(found[-1][1]), _EVERYTHING)
            self.reached = found[-1][1]
        return found

    async def _entries(self, first: int, most: int) -> list[Match]:
        values = {"phrases": fts5_query(self._phrases), "first": first, "last": self._last, "most": most}
        rows = (await self._connection.execute(_SQLITE, values)).all()
        if rows:
            self._last = rows[-1].rowid
        return [(row.request_id, time_of(row.rowid)) for row in rows]

    # PostgreSQL

    async def _from_postgresql(self, most: int) -> list[Match]:
        found: list[Match] = []
        read = loose = 0
        while len(found) < most:
            size = min(max(FIRST_READ, read), MOST_READ - read)
            if size <= 0 or (read and await self._index_is_cheaper(most - len(found), read, len(found), loose)):
                break
            some, with_words, complete = await self._read(size)
            found, read, loose = found + some, read + size, loose + with_words
            if complete:
                self.over = True
                return found
        if len(found) < most and await self._index_is_cheaper(most - len(found), read, len(found), loose):
            found += await self._indexed(most - len(found))
            self.over = len(found) < most
        return found

    async def _index_is_cheaper(self, wanted: int, read: int, found: int, loose: int) -> bool:
        """Return whether it is cheaper to fetch all requests that contain the words than to read until ``wanted``
        matches are found."""
        if not loose:
            return True
        fetched = loose / read * await self._size()
        needed = min(MOST_READ, wanted * read / found) if found else MOST_READ
        return fetched < _COST_OF_READING * needed

    async def _size(self) -> float:
        """Return the approximate number of requests that can be searched."""
        if self._all is None:
            self._all = float((await self._connection.execute(_SIZE)).scalar_one() or 0)
        return self._all

    async def _read(self, size: int) -> tuple[list[Match], int, bool]:
        """Read the next ``size`` requests, and all others with the same time as the last one. Return the matches, the
        number of requests that contain the words, and whether there are no more requests."""
        columns = request_search.c
        newest = self._within(select(columns.ts)).order_by(columns.ts.desc())
        end = (await self._connection.execute(newest.offset(size - 1).limit(1))).scalar()
        # OFFSET 0 keeps PostgreSQL from using the word index.
        rows = self._within(select(columns.ts, columns.request_id, columns.body)).offset(0)
        if end is not None:
            rows = rows.where(columns.ts >= end)
        some = rows.subquery()
        words = tuple(
            Phrase((word,), phrase.prefix and word is phrase.words[-1])
            for phrase in self._phrases
            for word in phrase.words
        )
        query = select(some.c.ts, some.c.request_id, _matches(some.c.body, self._phrases).label("matches"))
        query = query.where(_matches(some.c.body, words)).order_by(some.c.ts.desc())
        found = (await self._connection.execute(query)).all()
        if end is not None:
            self._last = self.reached = end
        return [(row.request_id, row.ts) for row in found if row.matches], len(found), end is None

    async def _indexed(self, most: int) -> list[Match]:
        """Find all further matches with the word index, and return the newest ones."""
        columns = request_search.c
        matching = select(columns.ts, columns.request_id).where(_matches(columns.body, self._phrases)).offset(0)
        every = matching.subquery()
        query = self._within(select(every.c.ts, every.c.request_id), every.c.ts)
        query = query.order_by(every.c.ts.desc()).fetch(most, with_ties=True)
        # The planner assumes that words occur independently. For words that rarely occur together, it therefore expects
        # too many matches, and would read the whole table.
        await self._connection.execute(text("SET LOCAL enable_seqscan = off"))
        rows = (await self._connection.execute(query)).all()
        await self._connection.execute(text("SET LOCAL enable_seqscan = on"))
        if rows:
            self._last = self.reached = rows[-1].ts
        return [(row.request_id, row.ts) for row in rows]

    def _within(self, query: Select[Any], ts: ColumnElement[Any] = request_search.c.ts) -> Select[Any]:
        """Add the conditions that select the requests that haven't been read yet."""
        until = self._until if self._last is None else self._last
        if self._since is not None:
            query = query.where(ts >= self._since)
        return query if until is None else query.where(ts < until)


def _matches(body: ColumnElement[Any], phrases: Sequence[Phrase]) -> ColumnElement[bool]:
    return body.op("@@", is_comparison=True)(func.to_tsquery(CONFIGURATION, tsquery(phrases)))
