"""All tables, defined with SQLAlchemy Core. For every column that the admin API filters by, there is an index in keyset
order.

Events are written once and never changed. Their keys are derived from the request, so writing an event twice adds
nothing. On PostgreSQL, the event log is partitioned by month; see ``app.db.partitions``.
"""

from datetime import UTC, datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Computed,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    false,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class UTCDateTime(TypeDecorator[datetime]):
    """A column type for timezone-aware datetimes, even on SQLite, which doesn't store time zones. Naive values are
    rejected."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a datetime without a time zone cannot be stored")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Json = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


ONE_DIALECT = "one_dialect"
"""A key in the ``info`` of a table or constraint that exists in only one dialect. Its value is the name of the
dialect."""


def _of_request() -> ForeignKeyConstraint:
    # SQLite only. On PostgreSQL, the table is partitioned by time and has no unique key on the request id alone, so a
    # foreign key can't refer to it. Instead, an event is written in one transaction, and the code that deletes requests
    # also deletes their rows in other tables.
    key = ForeignKeyConstraint(
        ["request_id"], ["requests.request_id"], ondelete="CASCADE", info={ONE_DIALECT: "sqlite"}
    )
    return key.ddl_if(dialect="sqlite")


policies = Table(
    "policies",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("category", String, nullable=False),
    Column("rules", Json, nullable=False),
    Column("scope", Json, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("mode", String, nullable=False),
    Column("canary_percent", Integer, nullable=False, server_default="100"),
    Column("version", Integer, nullable=False),
    Column("created_at", UTCDateTime, nullable=False),
    Column("updated_at", UTCDateTime, nullable=False),
)

# ``policy_id`` is not a foreign key. Events refer to versions of deleted policies, so these versions are kept.
policy_versions = Table(
    "policy_versions",
    metadata,
    Column("policy_id", String, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("change", String, nullable=False),
    Column("ts", UTCDateTime, nullable=False),
    Column("name", String, nullable=False),
    Column("category", String, nullable=False),
    Column("rules", Json, nullable=False),
    Column("scope", Json, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("mode", String, nullable=False),
    Column("canary_percent", Integer, nullable=False, server_default="100"),
)

REPORTS_SCORES = {
    "sqlite": "json_extract(extra, '$.choices[0].record.reported_scores') IS NOT NULL",
    "postgresql": "extra #> '{choices,0,record,reported_scores}' IS NOT NULL",
}
"""By dialect, the SQL condition for requests whose client reported grounding scores. A query must contain it literally
to use the index on these requests."""

requests = Table(
    "requests",
    metadata,
    Column("request_id", String, primary_key=True),
    Column("ts", UTCDateTime, nullable=False),
    Column("api", String, nullable=False),
    Column("model", String),
    Column("resolved_model", String),
    Column("agent", String),
    Column("run_id", String),
    Column("key_prefix", String),
    Column("stream", Boolean, nullable=False),
    Column("status", String, nullable=False),
    Column("http_status", Integer, nullable=False),
    Column("action", String, nullable=False),
    Column("verdict", String, nullable=False),
    Column("trust_score", Double),
    Column("documents", Integer, nullable=False),
    Column("sentences", Integer, nullable=False),
    Column("prompt_tokens", BigInteger),
    Column("completion_tokens", BigInteger),
    Column("usage_estimated", Boolean, nullable=False),
    Column("upstream_ms", Double),
    Column("judge_ms", Double),
    Column("total_ms", Double, nullable=False),
    Column("finish_reason", String),
    Column("error", Text),
    Column("prompt", Text),
    Column("reply", Text),
    Column("extra", Json, nullable=False, server_default="{}"),
    Column("regenerations", Integer, nullable=False, server_default="0"),
    Column("question", Text),
    Column("total_tokens", BigInteger, Computed("prompt_tokens + completion_tokens", persisted=True)),
    # These four summarize the scores of the request's claims and documents; see ``score_summary`` in
    # app.events.serialization.
    Column("lowest_claim_score", Double),
    Column("average_claim_score", Double),
    Column("lowest_relevance_score", Double),
    Column("average_relevance_score", Double),
    Index(None, "ts", "request_id"),
    Index(None, "agent", "ts", "request_id"),
    Index(None, "model", "ts", "request_id"),
    Index(None, "action", "ts", "request_id"),
    Index(None, "key_prefix", "ts", "request_id"),
    Index(None, "run_id", "ts"),
    Index(None, "total_ms", "request_id"),
    Index(None, "trust_score", "request_id"),
    Index(None, "total_tokens", "request_id"),
    Index(
        "ix_requests_with_reported_scores",
        "ts",
        "request_id",
        sqlite_where=text(REPORTS_SCORES["sqlite"]),
        postgresql_where=text(REPORTS_SCORES["postgresql"]),
    ),
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", String, primary_key=True),
    Column("request_id", String, nullable=False),
    Column("position", Integer, nullable=False),
    Column("run_id", String),
    Column("ts", UTCDateTime, nullable=False),
    Column("agent", String),
    Column("model", String),
    Column("policy_id", String, nullable=False),
    Column("policy_version", Integer, nullable=False),
    Column("policy_name", String, nullable=False),
    Column("category", String, nullable=False),
    Column("phase", String, nullable=False),
    Column("action", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("reason_code", String),
    Column("metadata", Json, nullable=False),
    Column("latency_ms", Double, nullable=False),
    Column("shadow", Boolean, nullable=False, server_default=false()),
    _of_request(),
    Index(None, "request_id", "position"),
    Index(None, "run_id", "ts", "id"),
    *(
        Index(None, *column, "ts", "id")
        for column in ((), ("agent",), ("model",), ("policy_id",), ("phase",), ("action",), ("reason_code",))
    ),
)

claims = Table(
    "claims",
    metadata,
    Column("request_id", String, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("choice", Integer, nullable=False),
    Column("sentence_index", Integer, nullable=False),
    Column("start", Integer, nullable=False),
    Column("end", Integer, nullable=False),
    Column("label", String, nullable=False),
    Column("score", Double),
    Column("confidence", Double),
    Column("document_id", String),
    Column("document_index", Integer),
    Column("evidence_start", Integer),
    Column("evidence_end", Integer),
    Column("delivered", Boolean, nullable=False),
    Column("reason", String),
    Column("judge_ms", Double),
    Column("text", Text),
    Column("evidence", Text),
    Column("extra", Json, nullable=False),
    Column("ts", UTCDateTime, nullable=False),
    _of_request(),
)

documents = Table(
    "documents",
    metadata,
    Column("request_id", String, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("document_id", String, nullable=False),
    Column("source", String),
    Column("collection", String),
    Column("relevance_score", Double),
    Column("age_days", Double),
    Column("title", Text),
    Column("url", Text),
    Column("kept", Boolean, nullable=False),
    Column("reason", Text),
    Column("text", Text),
    Column("ts", UTCDateTime, nullable=False),
    _of_request(),
)

EVENT_TABLES = (requests, decisions, claims, documents)
"""The tables of an event, in insertion order. In all of them, ``ts`` is the time of the request."""

# ``version`` is the number of the last step. ``state`` is the data that applies to the whole run.
runs = Table(
    "runs",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("agent", String),
    Column("key_prefix", String),
    Column("status", String, nullable=False),
    Column("version", Integer, nullable=False),
    Column("state", Json, nullable=False),
    Column("created_at", UTCDateTime, nullable=False),
    Column("updated_at", UTCDateTime, nullable=False),
    Index(None, "created_at", "run_id"),
)

# The steps of a run, in order. They are append-only, so two workers can't overwrite each other.
run_steps = Table(
    "run_steps",
    metadata,
    Column("run_id", String, ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("ts", UTCDateTime, nullable=False),
    Column("kind", String, nullable=False),
    Column("key", String),
    Column("data", Json, nullable=False),
    Column("decisions", Json, nullable=False),
)

feedback = Table(
    "feedback",
    metadata,
    Column("id", String, primary_key=True),
    Column("request_id", String, nullable=False, index=True),
    # "decision" or "reply"
    Column("about", String, nullable=False, server_default="decision"),
    Column("decision_id", String),
    Column("correct", Boolean, nullable=False),
    Column("note", Text),
    Column("created_at", UTCDateTime, nullable=False),
    _of_request(),
    Index(None, "created_at", "id"),
)

# A label that a person gave to a claim. The claim's text stays in ``claims``, so that it is deleted with the request.
claim_labels = Table(
    "claim_labels",
    metadata,
    Column("request_id", String, primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("verdict", String, nullable=False),
    Column("author", String, nullable=False),
    Column("created_at", UTCDateTime, nullable=False),
)

MARKS = (feedback, claim_labels)
"""The tables with people's feedback on requests and their labels for claims. Both are deleted with the requests."""

# ``query`` contains the URL parameters of the dashboard's request list.
saved_views = Table(
    "saved_views",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("query", Json, nullable=False),
    Column("created_at", UTCDateTime, nullable=False),
    Column("updated_at", UTCDateTime, nullable=False),
)

trace_shares = Table(
    "trace_shares",
    metadata,
    Column("id", String, primary_key=True),
    Column("request_id", String, nullable=False, index=True),
    Column("created_at", UTCDateTime, nullable=False),
    Column("expires_at", UTCDateTime, nullable=False),
    Column("revoked_at", UTCDateTime),
)

# One row per worker process, renewed every few seconds. ``versions`` contains the policy versions that it has loaded.
workers = Table(
    "workers",
    metadata,
    Column("id", String, primary_key=True),
    Column("host", String, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("versions", Json, nullable=False),
    Column("started_at", UTCDateTime, nullable=False),
    Column("loaded_at", UTCDateTime, nullable=False),
    Column("seen_at", UTCDateTime, nullable=False),
)

meta = Table("meta", metadata, Column("key", String, primary_key=True), Column("value", Text, nullable=False))

POLICY_REVISION = "policy_revision"
"""The key in ``meta`` for the counter that every policy change increments. The first migration creates it."""

KEY_REVISION, SECRET_REVISION, BUDGET_REVISION = "key_revision", "secret_revision", "budget_revision"
"""The key in ``meta`` for the counter that changes to gateway keys, secrets and budgets increment. The first change
creates the counter."""
