"""Add a full-text index of requests whose texts are stored, the question of each request, and indexes for sorting
requests.

The index is filled from the stored texts, a few hundred requests at a time.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

SORTED = (["key_prefix", "ts", "request_id"], *([name, "request_id"] for name in ("total_ms", "trust_score", "total_tokens")))
FTS5 = """
CREATE VIRTUAL TABLE request_search USING fts5(request_id UNINDEXED, body, tokenize = 'ascii', prefix = '3 4')
"""
# A partition for each month of the event log.
MAKE_MONTHS = """
DO $$
DECLARE
    month timestamp;
BEGIN
    FOR month IN
        SELECT to_timestamp(right(child.relname, 7), 'YYYY_MM')::timestamp
        FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
        WHERE inhparent = to_regclass('requests') AND child.relname ~ '^requests_[0-9]{4}_[0-9]{2}$'
    LOOP
        EXECUTE format(
            'CREATE TABLE %I PARTITION OF request_search FOR VALUES FROM (%L) TO (%L)',
            'request_search' || to_char(month, '_YYYY_MM'),
            to_char(month, 'YYYY-MM-01 "UTC"'),
            to_char(month + interval '1 month', 'YYYY-MM-01 "UTC"')
        );
    END LOOP;
END
$$
"""
BATCH = 500
LONGEST, LONGEST_WORD = 50_000, 64
PER_MICROSECOND, LARGEST = 1_024, 2**62
IDEOGRAPHS = "\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORD = re.compile(f"[{IDEOGRAPHS}]|[^\\W_{IDEOGRAPHS}]+")
HASH = re.compile(r"sha256:[0-9a-f]{64}")

requests = sa.table(
    "requests",
    sa.column("request_id", sa.String()),
    sa.column("ts", sa.DateTime(timezone=True)),
    sa.column("prompt", sa.Text()),
    sa.column("reply", sa.Text()),
)
claims = sa.table("claims", *(sa.column(name) for name in ("request_id", "seq", "text")))
documents = sa.table(
    "documents", *(sa.column(name) for name in ("request_id", "position", "title", "document_id", "source", "text"))
)


def upgrade() -> None:
    op.add_column("requests", sa.Column("question", sa.Text()))
    # SQLite can add a computed column only if the column is computed when it is read.
    stored = op.get_context().dialect.name != "sqlite"
    tokens = sa.Computed("prompt_tokens + completion_tokens", persisted=stored)
    op.add_column("requests", sa.Column("total_tokens", sa.BigInteger(), tokens))
    for columns in SORTED:
        op.create_index("_".join(["ix_requests", *columns]), "requests", columns)
    if op.get_context().dialect.name == "sqlite":
        op.execute(FTS5)
        fill()
        return
    op.create_table(
        "request_search",
        sa.Column("ts", sa.DateTime(timezone=True), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("body", postgresql.TSVECTOR(), nullable=False),
        sa.PrimaryKeyConstraint("ts", "request_id", name="pk_request_search"),
        postgresql_partition_by="RANGE (ts)",
    )
    op.execute("CREATE TABLE request_search_default PARTITION OF request_search DEFAULT")
    op.execute(MAKE_MONTHS)
    fill()
    # Create it after the rows, which is faster.
    op.create_index("ix_request_search_body", "request_search", ["body"], postgresql_using="gin")


def downgrade() -> None:
    op.drop_table("request_search")
    for columns in SORTED:
        op.drop_index("_".join(["ix_requests", *columns]), "requests")
    for column in ("total_tokens", "question"):
        op.drop_column("requests", column)


def fill() -> None:
    if op.get_context().as_sql:
        return  # There is no database to read from.
    connection, after = op.get_bind(), None
    while rows := connection.execute(stored(after)).all():
        ids = [row.request_id for row in rows]
        insert(connection, [(row.request_id, row.ts, body) for row, body in zip(rows, bodies(connection, rows, ids), strict=True)])
        after = rows[-1]


def stored(after: Any) -> sa.Select[Any]:
    """Return the next requests whose texts are stored, oldest first."""
    columns = requests.c
    plain = (sa.and_(text.is_not(None), text.not_like("sha256:%")) for text in (columns.prompt, columns.reply))
    query = sa.select(*columns).where(sa.or_(*plain)).order_by(columns.ts, columns.request_id).limit(BATCH)
    if after is None:
        return query
    last = sa.tuple_(after.ts, after.request_id, types=[columns.ts.type, columns.request_id.type])
    return query.where(sa.tuple_(columns.ts, columns.request_id) > last)


def bodies(connection: sa.Connection, rows: Sequence[Any], ids: Sequence[str]) -> Iterator[str]:
    names: dict[str, list[str]] = defaultdict(list)
    said: dict[str, list[str]] = defaultdict(list)
    for row in connection.execute(sa.select(*documents.c).where(documents.c.request_id.in_(ids)).order_by(documents.c.position)):
        names[row.request_id] += [name for name in (row.title, row.document_id, row.source) if name]
    for row in connection.execute(sa.select(*claims.c).where(claims.c.request_id.in_(ids)).order_by(claims.c.seq)):
        said[row.request_id].append(text_of(row.text))
    for row in rows:
        reply = text_of(row.reply)
        rest = [claim for claim in said[row.request_id] if claim not in reply]
        yield " ".join(words("\n".join([reply, *names[row.request_id], *rest, text_of(row.prompt)])[:LONGEST]))


def text_of(text: str | None) -> str:
    return "" if text is None or HASH.fullmatch(text) else text


def words(text: str) -> Iterable[str]:
    plain = unicodedata.normalize("NFKD", text.casefold())
    return (word[:LONGEST_WORD] for word in WORD.findall("".join(char for char in plain if not unicodedata.combining(char))))


def insert(connection: sa.Connection, entries: Sequence[tuple[str, Any, str]]) -> None:
    if connection.dialect.name != "sqlite":
        query = "INSERT INTO request_search (request_id, ts, body) VALUES (:id, :ts, to_tsvector('simple', :body))"
        connection.execute(sa.text(query), [{"id": id, "ts": ts, "body": body} for id, ts, body in entries])
        return
    connection.exec_driver_sql(
        "INSERT OR IGNORE INTO request_search (rowid, request_id, body) SELECT coalesce("
        "(SELECT max(id) + 1 FROM request_search_content WHERE id >= ?1 AND id < ?2), ?1), ?3, ?4",
        [(first := row_id(ts), first + PER_MICROSECOND, id, body) for id, ts, body in entries],
    )


def row_id(ts: datetime) -> int:
    """Return the time, in a unit that leaves room for several requests in the same microsecond."""
    ticks = (ts.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return max(-LARGEST, min(LARGEST, ticks * PER_MICROSECOND))
