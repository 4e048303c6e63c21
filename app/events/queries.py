"""Reads the event log: pages in keyset order, newest first, and complete traces of single requests."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, Table, exists, func, select, tuple_

from app.db.database import Database
from app.db.tables import claims, decisions, documents, requests
from app.errors import NotFoundError
from app.events.filters import EventFilter as EventFilter
from app.events.rollups.active_hours import Kind, hours_with, needs_hours
from judges.types import LABELS_WORST_FIRST

_TIMES = {"requests": requests.c.ts, "decisions": decisions.c.ts}
_EXPORT_PAGE = 500
_REQUESTS_AT_ONCE = 100
"""Requests read at a time for their claims, of which each request may have any number."""
_TEXTS = ("prompt", "reply")
_INTERNAL = "extra"
"""The column that only policy simulation reads."""
_EXPOSED = ("llm", "judge_fault", "judging", "marks", "dropped")
"""The values in that column that traces do include: LLM usage, why the cross-encoder was missing, its options, and the
timeline."""
_REQUESTS = tuple(column for column in requests.c if column.name not in (*_TEXTS, _INTERNAL))
_EVENTS = tuple(column for column in decisions.c if column.name != "position")
_LAST = "zzzz"
"""Sorts after every possible suffix of an id in any collation, because ids consist of letters and digits."""
_OF_REQUEST = ("request_id", "ts", "run_id", "agent", "model")
REQUEST_COLUMNS, EVENT_COLUMNS = (tuple(column.name for column in columns) for columns in (_REQUESTS, _EVENTS))
_OF_CLAIM = ("request_id", "seq", "ts")
"""Columns of a claim that refer to its request."""
CLAIM_COLUMNS = (*_OF_REQUEST, *(column.name for column in claims.c if column.name not in _OF_CLAIM))


Key = tuple[datetime, str]
"""The end of a page: the time and id of its last row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of rows, with the key to pass as ``after`` for the next page, which is None on the last page."""

    items: Sequence[dict[str, Any]]
    next: Key | None


class EventQueries:
    """Queries on one database. All methods raise DatabaseUnavailableError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def requests(self, filter: EventFilter, *, limit: int, after: Key | None = None) -> Page:
        """Return up to ``limit`` requests, without their texts."""
        query = requests_matching(filter, *_REQUESTS)
        return await self._page(query, requests.c.request_id, filter, "requests", limit, after)

    async def requests_named(self, prefix: str, *, limit: int, after: str | None = None) -> Page:
        """Return up to ``limit`` requests whose id starts with ``prefix``, sorted by id, starting after the id
        ``after``. For the next page, pass the id in ``next``."""
        id = requests.c.request_id
        # The bounds use the index; the last condition corrects for the collation.
        wanted = [id >= prefix, id <= prefix + _LAST, func.substr(id, 1, len(prefix)) == prefix]
        query = select(*_REQUESTS).where(*wanted).order_by(id).limit(limit + 1)
        if after is not None:
            query = query.where(id > after)
        async with self._database.read() as connection:
            items = [_plain(row) for row in (await connection.execute(query)).all()]
        shown = items[:limit]
        more = len(items) > limit
        return Page(items=shown, next=(shown[-1]["ts"], shown[-1]["request_id"]) if more else None)

    async def events(self, filter: EventFilter, *, limit: int, after: Key | None = None) -> Page:
        """Return up to ``limit`` decisions."""
        query = select(*_EVENTS).where(*_shared(filter, decisions), *_of_decisions(filter))
        return await self._page(query, decisions.c.id, filter, "decisions", limit, after)

    async def all_requests(self, filter: EventFilter) -> AsyncIterator[dict[str, Any]]:
        """Yield all requests. No transaction is open between pages, however slow the reader is."""
        after: Key | None = None
        while True:
            page = await self.requests(filter, limit=_EXPORT_PAGE, after=after)
            for item in page.items:
                yield item
            if (after := page.next) is None:
                return

    async def all_events(self, filter: EventFilter) -> AsyncIterator[dict[str, Any]]:
        """Yield all decisions; see ``all_requests``."""
        after: Key | None = None
        while True:
            page = await self.events(filter, limit=_EXPORT_PAGE, after=after)
            for item in page.items:
                yield item
            if (after := page.next) is None:
                return

    async def all_claims(self, filter: EventFilter) -> AsyncIterator[dict[str, Any]]:
        """Yield all claims in matching requests, with the claims of each request in text order; see
        ``all_requests``."""
        after: Key | None = None
        while True:
            page = await self.requests(filter, limit=_REQUESTS_AT_ONCE, after=after)
            of = {item["request_id"]: {name: item[name] for name in _OF_REQUEST} for item in page.items}
            if not page.items:
                return
            last, first = page.items[-1]["ts"], page.items[0]["ts"]
            query = select(claims).where(claims.c.request_id.in_(of), claims.c.ts.between(last, first))
            query = query.order_by(claims.c.ts.desc(), claims.c.request_id, claims.c.seq)
            async with self._database.read() as connection:
                found = [_plain(row) for row in (await connection.execute(query)).all()]
            for claim in found:
                yield of[claim["request_id"]] | _without(claim, *_OF_CLAIM)
            if (after := page.next) is None:
                return

    async def trace(self, request_id: str) -> dict[str, Any]:
        """Return everything stored about one request: ``request`` (with its stored texts and the ``_EXPOSED`` values,
        None if absent), ``documents``, ``decisions``, and ``sentences`` with their claims. Raises NotFoundError."""
        async with self._database.read() as connection:
            request = (await connection.execute(select(requests).where(requests.c.request_id == request_id))).first()
            if request is None:
                raise NotFoundError(f"request {request_id!r} does not exist")
            found: dict[str, list[dict[str, Any]]] = {}
            for table, order in (
                (documents, documents.c.position),
                (decisions, decisions.c.position),
                (claims, claims.c.seq),
            ):
                query = select(table).where(table.c.request_id == request_id, table.c.ts == request.ts).order_by(order)
                found[table.name] = [_plain(row) for row in (await connection.execute(query)).all()]
        return trace_of({"requests": [_plain(request)], **found})

    async def _page(
        self, query: Select[Any], id: ColumnElement[Any], filter: EventFilter, kind: Kind, limit: int, after: Key | None
    ) -> Page:
        ts = _TIMES[kind]
        if after is not None:
            query = query.where(*before_key(after, ts, id))
        query = query.order_by(ts.desc(), id.desc())
        async with self._database.read() as connection:
            if needs_hours(filter, kind):
                rows: list[Row[Any]] = []
                ends = [end for end in (filter.until, after and after[0]) if end is not None]
                async for since, until in hours_with(connection, filter, kind, min(ends, default=None)):
                    within_hours = query.where(ts >= since, ts < until).limit(limit + 1 - len(rows))
                    rows += (await connection.execute(within_hours)).all()
                    if len(rows) > limit:
                        break
            else:
                rows = list((await connection.execute(query.limit(limit + 1))).all())
        items = [_plain(row) for row in rows[:limit]]
        more = len(rows) > limit
        return Page(items=items, next=(items[-1]["ts"], items[-1][str(id.key)]) if more else None)


def trace_of(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Build the result of ``EventQueries.trace`` from one request's rows by table."""
    return {
        "request": _with_exposed(rows["requests"][0]),
        "documents": [_without(row, "request_id", "ts") for row in rows["documents"]],
        "decisions": [_without(row, "position") for row in rows["decisions"]],
        "sentences": _sentences([_without(row, *_OF_CLAIM) for row in rows["claims"]]),
    }


def _with_exposed(row: Mapping[str, Any]) -> dict[str, Any]:
    return _without(row, _INTERNAL) | {name: (row[_INTERNAL] or {}).get(name) for name in _EXPOSED}


def requests_matching(filter: EventFilter, *columns: ColumnElement[Any]) -> Select[Any]:
    """Build a query for ``columns`` of the requests that match ``filter``, unordered."""
    query = select(*columns).where(*_shared(filter, requests))
    if on_decisions := _of_decisions(filter):
        same = decisions.c.request_id == requests.c.request_id, decisions.c.ts == requests.c.ts
        query = query.where(exists().where(*same, *within(filter, decisions.c.ts), *on_decisions))
    return query


def decisions_matching(filter: EventFilter, *columns: ColumnElement[Any]) -> Select[Any]:
    """Build a query for ``columns`` of the decisions that match ``filter``, unordered."""
    return select(*columns).where(*_shared(filter, decisions), *_of_decisions(filter))


def within(filter: EventFilter, ts: ColumnElement[Any]) -> list[ColumnElement[bool]]:
    """Build the conditions of ``filter`` on the time column ``ts``. Joined tables need them too, because PostgreSQL
    prunes partitions only by conditions on the table itself."""
    wanted = []
    if filter.since is not None:
        wanted.append(ts >= filter.since)
    if filter.until is not None:
        wanted.append(ts < filter.until)
    return wanted


def before_key(after: Key, ts: ColumnElement[Any], id: ColumnElement[Any]) -> list[ColumnElement[bool]]:
    """Build the conditions for the rows that follow the key ``after``, newest first."""
    # The second condition is sufficient; the first lets PostgreSQL prune partitions.
    return [ts <= after[0], tuple_(ts, id) < tuple_(*after, types=[ts.type, id.type])]


def _shared(filter: EventFilter, table: Table) -> list[ColumnElement[bool]]:
    columns = table.c
    wanted = [
        columns[name] == value
        for name in ("agent", "model", "run_id", "action")
        if (value := getattr(filter, name)) is not None
    ]
    return wanted + within(filter, columns.ts)


def _of_decisions(filter: EventFilter) -> list[ColumnElement[bool]]:
    wanted = {
        "policy_id": filter.policy,
        "phase": filter.phase,
        "reason_code": filter.reason_code,
        "shadow": filter.shadow,
    }
    return [decisions.c[name] == value for name, value in wanted.items() if value is not None]


def _sentences(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    ordered = sorted(rows, key=lambda row: (row["choice"], row["sentence_index"]))
    return [
        {"choice": choice, "index": index} | _sentence(list(group))
        for (choice, index), group in groupby(ordered, key=lambda row: (row["choice"], row["sentence_index"]))
    ]


def _sentence(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    labels = {row["label"] for row in rows}
    times = [row["judge_ms"] for row in rows if row["judge_ms"] is not None]
    return {
        "label": next((label.value for label in LABELS_WORST_FIRST if label in labels), rows[0]["label"]),
        "start": min(row["start"] for row in rows),
        "end": max(row["end"] for row in rows),
        "delivered": all(row["delivered"] for row in rows),
        "judge_ms": max(times, default=None),
        "claims": [_without(row, "choice", "sentence_index") for row in rows],
    }


def _plain(row: Row[Any]) -> dict[str, Any]:
    # SQLAlchemy's column names are a str subclass that JSON encoders reject.
    return {str(name): value for name, value in row._mapping.items()}


def _without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}
