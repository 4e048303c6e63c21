"""Reads the event log: pages in keyset order, newest first, and complete traces of individual requests."""

from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import select

from app.db.database import Database
from app.db.tables import claims, decisions, documents, requests
from app.errors import NotFoundError
from app.events.document_outcomes import with_outcomes
from app.events.filters import NEWEST_FIRST, EventFilter, Key, Order
from app.events.request_pages import Page, newest_rows, plain_row, request_page, rows_by_time
from app.events.sql_conditions import decision_conditions, shared_conditions
from judges.types import LABELS_WORST_FIRST

_EXPORT_PAGE = 500
_REQUESTS_AT_ONCE = 100
"""Number of requests whose claims are read at a time. A request may have any number of claims."""
_TEXTS = ("prompt", "reply")
_INTERNAL = "extra"
"""The column that only policy simulation reads completely."""
_EXPOSED = ("llm", "judge_fault", "judging", "marks", "dropped")
"""The values in the column ``extra`` that traces include: LLM usage, why the cross-encoder was missing, the judge
options, the timeline, and the amounts of content that a policy left out."""
REQUESTS = tuple(column for column in requests.c if column.name not in (*_TEXTS, _INTERNAL))
_EVENTS = tuple(column for column in decisions.c if column.name != "position")
_OF_REQUEST = ("request_id", "ts", "run_id", "agent", "model")
REQUEST_COLUMNS, EVENT_COLUMNS = (tuple(column.name for column in columns) for columns in (REQUESTS, _EVENTS))
_OF_CLAIM = ("request_id", "seq", "ts")
"""Columns that link a claim to its request."""
CLAIM_COLUMNS = (*_OF_REQUEST, *(column.name for column in claims.c if column.name not in _OF_CLAIM))


class EventQueries:
    """Queries the event log in a database. All methods raise DatabaseUnavailableError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def requests(
        self, filter: EventFilter, *, limit: int, after: Key | None = None, order: Order = NEWEST_FIRST
    ) -> Page:
        """Return up to ``limit`` requests in ``order``, without their text.

        The number of rows read for a page is limited. If no index covers the filter, about ``MOST_READ`` requests are
        read. In a text search, ``MOST_SEARCHED`` matches are read. A page may therefore have fewer rows than ``limit``,
        or none, and still have a ``next``. If the order is not by time, only the newest matches of a search are sorted.
        """
        async with self._database.read() as connection:
            return await request_page(connection, filter, REQUESTS, order, limit, after)

    async def newest(self, filter: EventFilter, names: Sequence[str], most: int) -> tuple[Sequence[Any], bool]:
        """Return up to ``most`` of the newest matching requests, as tuples of the columns ``names``, within the limits
        that apply to a page. Also return whether these are all of the matching requests."""
        async with self._database.read() as connection:
            return await newest_rows(connection, filter, [requests.c[name] for name in names], most)

    async def events(self, filter: EventFilter, *, limit: int, after: Key | None = None) -> Page:
        """Return up to ``limit`` decisions."""
        query = select(*_EVENTS).where(*shared_conditions(filter, decisions), *decision_conditions(filter))
        async with self._database.read() as connection:
            rows, _ = await rows_by_time(connection, query, filter, "decisions", limit + 1, after)
        items = [plain_row(row) for row in rows[:limit]]
        return Page(items=items, next=(items[-1]["ts"], items[-1]["id"]) if len(rows) > limit else None)

    async def all_requests(self, filter: EventFilter) -> AsyncIterator[dict[str, Any]]:
        """Yield all requests. No transaction stays open between pages, so the reader may be slow."""
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
        """Yield all claims in matching requests. The claims of each request are in text order. See ``all_requests``."""
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
                found = [plain_row(row) for row in (await connection.execute(query)).all()]
            for claim in found:
                yield of[claim["request_id"]] | _without(claim, *_OF_CLAIM)
            if (after := page.next) is None:
                return

    async def trace(self, request_id: str) -> dict[str, Any]:
        """Return everything stored about one request: ``request``, ``documents`` with their outcomes, ``decisions``,
        and ``sentences`` with their claims. ``request`` includes its stored text and the ``_EXPOSED`` values, which are
        None if absent. Raises NotFoundError."""
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
                found[table.name] = [plain_row(row) for row in (await connection.execute(query)).all()]
        return trace_of({"requests": [plain_row(request)], **found})


def trace_of(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Build the result of ``EventQueries.trace`` from the rows of one request, which are given by table."""
    request = rows["requests"][0]
    return {
        "request": _with_exposed(request),
        "documents": with_outcomes(
            [_without(row, "request_id", "ts") for row in rows["documents"]],
            blocked=request["status"] == "blocked" and request["upstream_ms"] is None,
            decisions=rows["decisions"],
        ),
        "decisions": [_without(row, "position") for row in rows["decisions"]],
        "sentences": _sentences([_without(row, *_OF_CLAIM) for row in rows["claims"]]),
    }


def _with_exposed(row: Mapping[str, Any]) -> dict[str, Any]:
    return _without(row, _INTERNAL) | {name: (row[_INTERNAL] or {}).get(name) for name in _EXPOSED}


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


def _without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}
