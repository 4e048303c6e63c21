"""Reads the event log for a replay, page by page, with only the columns needed."""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Table, Text, cast, select

from app.db.database import Database
from app.db.tables import claims, documents, requests
from app.events.filters import EventFilter, Key
from app.events.replay_data import LoggedRows
from app.events.sql_conditions import before_key, requests_matching
from app.runs.run_access import RUN_ID
from judges.types import Chunk

_PAGE = 200
# These columns are read as text, so that the JSON is decoded in a thread. Otherwise, the driver would decode it on the
# event loop.
_EXTRA = cast(requests.c.extra, Text).label("extra")
_CLAIM_EXTRA = cast(claims.c.extra, Text).label("extra")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRequest:
    """A request from the event log. ``unit`` is the unit of canary assignment."""

    request_id: str
    ts: datetime
    agent: str | None
    model: str | None
    key_prefix: str | None
    unit: str
    rows: LoggedRows


@dataclass(frozen=True, slots=True)
class RawPage:
    """The unparsed rows of some requests."""

    requests: Sequence[Any]
    claims: Sequence[Any]
    documents: Sequence[Any]

    @property
    def last(self) -> Key:
        row = self.requests[-1]
        return row.ts, row.request_id

    def parse(self) -> list[StoredRequest]:
        """Parse the requests and return them in order. Parsing is slow, so call this in a thread."""
        claims_of: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for request_id, choice, extra in self.claims:
            claims_of[request_id].append((choice, extra))
        documents_of: dict[str, list[tuple[Chunk, bool]]] = defaultdict(list)
        for request_id, kept, *values in self.documents:
            documents_of[request_id].append((_chunk(*values), kept))
        return [
            StoredRequest(
                request_id=row.request_id,
                ts=row.ts,
                agent=row.agent,
                model=row.model,
                key_prefix=row.key_prefix,
                unit=row.run_id if RUN_ID.fullmatch(row.run_id or "") else row.request_id,
                rows=LoggedRows(
                    extra=row.extra,
                    stream=row.stream,
                    blocked=row.status == "blocked",
                    claims=claims_of[row.request_id],
                    documents=documents_of[row.request_id],
                ),
            )
            for row in self.requests
        ]


_CHUNK = ("document_id", "source", "collection", "relevance_score", "age_days", "title", "url")


def _chunk(
    document_id: str,
    source: str | None,
    collection: str | None,
    relevance_score: float | None,
    age_days: float | None,
    title: str | None,
    url: str | None,
) -> Chunk:
    return Chunk(
        id=document_id,
        text="",
        source=source,
        collection=collection,
        relevance_score=relevance_score,
        age_days=age_days,
        title=title,
        url=url,
    )


async def read_pages(
    database: Database, filter: EventFilter, *, limit: int, after: Key | None = None
) -> AsyncIterator[RawPage]:
    """Yield up to ``limit`` matching requests in pages, newest first. No transaction is open between pages.

    Raises DatabaseUnavailableError.
    """
    columns = requests.c
    wanted = (columns.request_id, columns.ts, columns.agent, columns.model, columns.key_prefix, columns.run_id)
    query = requests_matching(filter, *wanted, columns.status, columns.stream, _EXTRA)
    # Run steps and text checks are left out. They aren't replies, so policies evaluate them differently.
    query = query.where(columns.api.not_like("runs.%"), columns.api != "grounding.check")
    query = query.order_by(columns.ts.desc(), columns.request_id.desc())
    while limit > 0:
        of_page = query.limit(min(limit, _PAGE))
        if after is not None:
            of_page = of_page.where(*before_key(after, columns.ts, columns.request_id))
        async with database.read() as connection:
            found = (await connection.execute(of_page)).all()
            if not found:
                return
            page = RawPage(found, *[(await connection.execute(each)).all() for each in _parts(found)])
        yield page
        limit -= len(found)
        after = page.last


def _parts(found: Sequence[Any]) -> Sequence[Any]:
    ids = [row.request_id for row in found]

    def of_page(table: Table) -> ColumnElement[bool]:
        return table.c.request_id.in_(ids) & table.c.ts.between(found[-1].ts, found[0].ts)

    return (
        select(claims.c.request_id, claims.c.choice, _CLAIM_EXTRA)
        .where(of_page(claims))
        .order_by(claims.c.request_id, claims.c.seq),
        select(documents.c.request_id, documents.c.kept, *(documents.c[name] for name in _CHUNK))
        .where(of_page(documents))
        .order_by(documents.c.request_id, documents.c.position),
    )
