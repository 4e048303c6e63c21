"""Reads pages of requests that match a filter or a search, sorted by time or by a number."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from orjson import dumps
from sqlalchemy import ARRAY, ColumnElement, Row, Select, String, any_, cast, func, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.tables import decisions, requests
from app.events.filters import EventFilter, Key, Order
from app.events.rollups.active_hours import Kind, hours_with, needs_hours
from app.events.search.matches import Match, TextMatches
from app.events.search.search_query import phrases_of
from app.events.sql_conditions import before_key, requests_matching, within

MOST_SEARCHED = 5_000
"""The maximum number of search matches that are read for a page."""
MOST_SORTED = 5_000
"""The maximum number of matching requests that are sorted in memory. If more requests match, they are read in order
from the index on the sort column, which is fast because matches are then frequent."""
MOST_READ = 20_000
"""The approximate number of requests to read for a page or for counts if no index finds the matching requests."""
_LEAST_READ = 300
"""The minimum cost of a query, in requests. Even a query without results takes as long as reading this many
requests."""
_FIRST_PART = 100
"""The number of search matches to read first. Each further batch is larger."""
_KEYS = {"requests": (requests.c.ts, requests.c.request_id), "decisions": (decisions.c.ts, decisions.c.id)}
_VALUES = {
    "time": requests.c.ts,
    "latency": requests.c.total_ms,
    "trust": requests.c.trust_score,
    "tokens": requests.c.total_tokens,
}
_LAST = "zzzz"
"""A suffix that sorts after every possible end of an id in any collation, because ids consist of letters and digits."""
_FEW = 1_000
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of rows. ``next`` is the key to pass as ``after`` for the next page, and is None on the last page."""

    items: Sequence[dict[str, Any]]
    next: Key | None


async def request_page(
    connection: AsyncConnection,
    filter: EventFilter,
    columns: Sequence[ColumnElement[Any]],
    order: Order,
    limit: int,
    after: Key | None,
) -> Page:
    """Read a page of requests; see ``EventQueries.requests``. ``columns`` must include the sort columns."""
    if order.column == "time" and order.descending:
        find = _newest if filter.text is None else _matching
        rows, reached = await find(connection, filter, columns, limit + 1, after)
        page = _page(rows, limit, "ts")
        return page if page.next or reached is None else replace(page, next=(reached, ""))
    return await _sorted(connection, filter, columns, order, limit, after)


async def newest_rows(
    connection: AsyncConnection, filter: EventFilter, columns: Sequence[ColumnElement[Any]], most: int
) -> tuple[list[Row[Any]], bool]:
    """Read up to ``most`` requests that match ``filter``, newest first, within the limits that apply to a page. Also
    return whether these are all of the matching requests."""
    find = _newest if filter.text is None else _matching
    rows, reached = await find(connection, filter, columns, most + 1, None)
    return rows[:most], reached is None and len(rows) <= most


async def rows_by_time(
    connection: AsyncConnection,
    query: Select[Any],
    filter: EventFilter,
    kind: Kind,
    most: int,
    after: Key | None,
    *,
    most_read: int | None = None,
) -> tuple[list[Row[Any]], datetime | None]:
    """Read up to ``most`` rows of ``query``, newest first, that follow the key ``after``.

    Stop early once about ``most_read`` rows have been searched. In this case, also return the time back to which all
    rows have been searched. Otherwise, return None as the time.
    """
    ts, id = _KEYS[kind]
    if after is not None:
        query = query.where(*before_key(after, ts, id))
    query = query.order_by(ts.desc(), id.desc())
    if not needs_hours(filter, kind):
        return list((await connection.execute(query.limit(most))).all()), None
    rows: list[Row[Any]] = []
    read = 0
    # A key without an id excludes rows with its own time. The hour that begins at this time has already been searched.
    before = None if after is None else after[0] if after[1] else after[0] - _TICK
    ends = [end for end in (filter.until, before) if end is not None]
    async for since, until, count in hours_with(connection, filter, kind, min(ends, default=None)):
        if most_read is not None and read >= most_read:
            return rows, until
        within_hours = query.where(ts >= since, ts < until).limit(most - len(rows))
        rows += (await connection.execute(within_hours)).all()
        if len(rows) == most:
            break
        read += max(count, _LEAST_READ)
    return rows, None


def plain_row(row: Row[Any]) -> dict[str, Any]:
    # SQLAlchemy's column names are a str subclass that JSON encoders reject.
    return {str(name): value for name, value in row._mapping.items()}


async def _newest(
    connection: AsyncConnection,
    filter: EventFilter,
    columns: Sequence[ColumnElement[Any]],
    most: int,
    after: Key | None,
) -> tuple[list[Row[Any]], datetime | None]:
    """Read up to ``most`` requests that match; see ``rows_by_time``."""
    conditions, few = await _few_of(connection, filter)
    query = requests_matching(filter, *columns).where(*conditions)
    if not few:
        return await rows_by_time(connection, query, filter, "requests", most, after, most_read=MOST_READ)
    ts, id = _KEYS["requests"]
    query = query if after is None else query.where(*before_key(after, ts, id))
    return list((await connection.execute(query.order_by(ts.desc(), id.desc()).limit(most))).all()), None


async def _few_of(connection: AsyncConnection, filter: EventFilter) -> tuple[list[ColumnElement[bool]], bool]:
    """Return conditions for the filter's id prefix, trust score and latency, and whether few requests meet one of them.

    If few requests meet a condition, the index on its column finds these requests, and the condition returned lists
    them. If many do, it is faster to read the requests in time order until enough of them match.
    """
    id = requests.c.request_id
    wanted, is_few = [], False
    if (prefix := filter.id_prefix) is not None:
        starts = func.substr(id, 1, len(prefix)) == prefix
        # The index can be used only with bounds. They depend on the collation, so also compare the first letters.
        few = await _if_few(connection, id >= prefix, id <= prefix + _LAST, starts)
        wanted.append(starts if few is None else few)
        is_few = few is not None
    for column, low, high in (
        (requests.c.trust_score, filter.min_trust, filter.max_trust),
        (requests.c.total_ms, filter.min_ms, filter.max_ms),
    ):
        bounds = [*([] if low is None else [column >= low]), *([] if high is None else [column <= high])]
        if bounds and (among := await _if_few(connection, *bounds)) is not None:
            wanted.append(among)
            is_few = True
    return wanted, is_few


async def _if_few(connection: AsyncConnection, *conditions: ColumnElement[bool]) -> ColumnElement[bool] | None:
    among = select(requests.c.request_id).where(*conditions).limit(_FEW + 1)
    found = (await connection.execute(select(func.count()).select_from(among.subquery()))).scalar_one()
    return requests.c.request_id.in_(among) if found <= _FEW else None


# Searches.


async def _matching(
    connection: AsyncConnection,
    filter: EventFilter,
    columns: Sequence[ColumnElement[Any]],
    most: int,
    after: Key | None,
) -> tuple[list[Row[Any]], datetime | None]:
    """Read at least ``most`` requests that match a search and the other filters, newest first.

    There may be fewer if the limit ``MOST_SEARCHED`` is reached or if the search is stopped. Also return the time back
    to which all requests have been searched, or None if there are no more matches.
    """
    query = requests_matching(filter, *columns)
    until = filter.until
    if after is not None:
        query = query.where(*before_key(after, *_KEYS["requests"]))
        until = min(until or after[0] + _TICK, after[0] + _TICK)
    matches = TextMatches(connection, phrases_of(filter.text or ""), since=filter.since, until=until)
    rows: list[Row[Any]] = []
    read, part = 0, max(_FIRST_PART, most)
    while len(rows) < most and read < MOST_SEARCHED:
        wanted = min(part, MOST_SEARCHED - read)
        found = await matches.next(wanted)
        if found:
            rows += await _among(connection, query, found)
        if matches.over:
            return rows, None
        if len(found) < wanted:
            break
        read, part = read + len(found), part * 4
    return rows, matches.reached


async def _among(connection: AsyncConnection, query: Select[Any], found: Sequence[Match]) -> Sequence[Row[Any]]:
    ts, id = _KEYS["requests"]
    query = query.where(_one_of(connection, [match[0] for match in found]), ts.between(found[-1][1], found[0][1]))
    return list((await connection.execute(query.order_by(ts.desc(), id.desc()))).all())


def _one_of(connection: AsyncConnection, ids: Sequence[str]) -> ColumnElement[bool]:
    """Build the condition that a request's id is one of ``ids``. The ids are passed as a single parameter, because
    preparing thousands of parameters would take longer than the query."""
    if connection.dialect.name == "sqlite":
        return requests.c.request_id.in_(text("SELECT value FROM json_each(:ids)").bindparams(ids=dumps(ids).decode()))
    return requests.c.request_id == any_(cast(ids, ARRAY(String)))


# Other orders.


async def _sorted(
    connection: AsyncConnection,
    filter: EventFilter,
    columns: Sequence[ColumnElement[Any]],
    order: Order,
    limit: int,
    after: Key | None,
) -> Page:
    value, id = _VALUES[order.column], requests.c.request_id
    if filter.text is None and order.column == "time":
        return await _walked(connection, filter, columns, order, limit, after)
    newest, complete = await newest_rows(connection, filter, [value.label("value"), id], MOST_SORTED)
    found = [(row.value, row.request_id) for row in newest]
    if filter.text is None and not complete:
        return await _walked(connection, filter, columns, order, limit, after)
    chosen = _in_order([key for key in found if after is None or _follows(key, after, order)], order)[: limit + 1]
    query = select(*columns).where(_one_of(connection, [key[1] for key in chosen]))
    rows = {row.request_id: row for row in (await connection.execute(query)).all()}
    return _page([rows[key[1]] for key in chosen if key[1] in rows], limit, str(value.key))


def _in_order(keys: Iterable[Key], order: Order) -> list[Key]:
    return sorted(
        keys, key=lambda key: ((key[0] is not None) == order.descending, key[0] or 0, key[1]), reverse=order.descending
    )


def _follows(key: Key, after: Key, order: Order) -> bool:
    if key[0] is None or after[0] is None:
        if key[0] is not None or after[0] is not None:
            return key[0] is None
        return key[1] < after[1] if order.descending else key[1] > after[1]
    return key < after if order.descending else key > after


async def _walked(
    connection: AsyncConnection,
    filter: EventFilter,
    columns: Sequence[ColumnElement[Any]],
    order: Order,
    limit: int,
    after: Key | None,
) -> Page:
    """Read a page from the index on the sort column. Requests with a value come first, followed by those without one.
    The page ends after ``MOST_READ`` entries of the index."""
    value, id = _VALUES[order.column], requests.c.request_id
    conditions, few = await _few_of(connection, filter)
    # SQLite assumes that every agent is rare. It would use the index on agents, and find and sort all of the agent's
    # requests, even if they make up half of all requests. Reading the requests in order is faster.
    in_order = connection.dialect.name == "sqlite" and order.column != "time"
    query = requests_matching(filter, *columns, without_index=in_order).where(*conditions)
    bounds = None if few or not _is_narrow(filter) else within(filter, value) if order.column == "time" else []
    rows: list[Row[Any]] = []
    if after is None or after[0] is not None:
        start = value.is_not(None) if after is None else _beyond(after, (value, id), order)
        rows, end = await _walk(connection, query, start, (value, id), order, limit + 1, bounds)
        if end is not None:
            return replace(_page(rows, limit, str(value.key)), next=end)
    if len(rows) <= limit and value.nullable:
        start = value.is_(None)
        if after is not None and after[0] is None:
            start &= _beyond(after[1:], (id,), order)
        rest, end = await _walk(connection, query, start, (id,), order, limit + 1 - len(rows), bounds)
        rows += rest
        if end is not None:
            return replace(_page(rows, limit, str(value.key)), next=end)
    return _page(rows, limit, str(value.key))


async def _walk(
    connection: AsyncConnection,
    query: Select[Any],
    start: ColumnElement[bool],
    by: Sequence[ColumnElement[Any]],
    order: Order,
    most: int,
    bounds: Sequence[ColumnElement[bool]] | None,
) -> tuple[list[Row[Any]], Key | None]:
    """Read up to ``most`` rows of ``query`` that meet the condition ``start``, in the order of the columns ``by``.

    If ``bounds`` is not None, search at most ``MOST_READ`` entries within the bounds. If these entries contain fewer
    than ``most`` rows, also return the key of the last entry.
    """
    ordered = [column.desc() if order.descending else column for column in by]
    query, last = query.where(start), None
    if bounds is not None:
        entries = select(*by).where(start, *bounds).order_by(*ordered)
        last = (await connection.execute(entries.offset(MOST_READ - 1).limit(1))).first()
    if last is not None:
        ours, theirs = tuple_(*by), tuple_(*last, types=[column.type for column in by])
        query = query.where(ours >= theirs if order.descending else ours <= theirs)
    rows = list((await connection.execute(query.order_by(*ordered).limit(most))).all())
    return rows, None if last is None or len(rows) == most else (last[0] if len(by) > 1 else None, last[-1])


def _is_narrow(filter: EventFilter) -> bool:
    """Return whether ``filter`` selects by anything other than time."""
    return filter != EventFilter(since=filter.since, until=filter.until)


def _beyond(after: Sequence[Any], by: Sequence[ColumnElement[Any]], order: Order) -> ColumnElement[bool]:
    ours, theirs = tuple_(*by), tuple_(*after, types=[column.type for column in by])
    return ours < theirs if order.descending else ours > theirs


def _page(rows: Sequence[Row[Any]], limit: int, column: str) -> Page:
    items = [plain_row(row) for row in rows[:limit]]
    return Page(items=items, next=(items[-1][column], items[-1]["request_id"]) if len(rows) > limit else None)
