"""Tables for access control: keys, tokens, users, sessions, budgets and secrets, and the audit log."""

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text, UniqueConstraint

from app.db.tables import Json, UTCDateTime, metadata

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("prefix", String, nullable=False, index=True),
    Column("hash", String, nullable=False, unique=True),
    Column("models", Json, nullable=False),
    Column("collections", Json, nullable=False, server_default="[]"),
    Column("requests_per_minute", Integer),
    Column("created_at", UTCDateTime, nullable=False),
    Column("revoked_at", UTCDateTime),
)

# Admin tokens besides the bootstrap token; see app/identity/admin_tokens.py.
admin_tokens = Table(
    "admin_tokens",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("prefix", String, nullable=False, unique=True),
    Column("hash", String, nullable=False),
    Column("role", String, nullable=False),
    Column("created_at", UTCDateTime, nullable=False),
    Column("created_by", String, nullable=False),
    Column("expires_at", UTCDateTime),
    Column("last_used_at", UTCDateTime),
    Column("revoked_at", UTCDateTime),
)

# ``claimed_role`` comes from the provider; ``assigned_role``, if set, replaces it.
users = Table(
    "users",
    metadata,
    Column("id", String, primary_key=True),
    Column("issuer", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("name", String, nullable=False),
    Column("claimed_role", String),
    Column("assigned_role", String),
    Column("created_at", UTCDateTime, nullable=False),
    Column("signed_in_at", UTCDateTime, nullable=False),
    UniqueConstraint("issuer", "subject"),
)

# ``principal_id`` is the id of a token or a user, or identifies the bootstrap token.
sessions = Table(
    "sessions",
    metadata,
    Column("id", String, primary_key=True),
    Column("hash", String, nullable=False, unique=True),
    Column("principal_id", String, nullable=False, index=True),
    Column("address", String),
    Column("browser", String),
    Column("created_at", UTCDateTime, nullable=False),
    Column("seen_at", UTCDateTime, nullable=False),
    Column("expires_at", UTCDateTime, nullable=False),
)

# ``limit`` is in requests, tokens, or billionths of a US dollar, and so is ``used`` below.
budgets = Table(
    "budgets",
    metadata,
    Column("id", String, primary_key=True),
    Column("subject", String, nullable=False),
    Column("name", String, nullable=False),
    Column("unit", String, nullable=False),
    Column("period", String, nullable=False),
    Column("limit", BigInteger, nullable=False),
    Column("uncounted", String, nullable=False),
    Column("created_at", UTCDateTime, nullable=False),
    UniqueConstraint("subject", "name", "unit", "period"),
)

# ``period`` is a day (2026-11-29) or a month (2026-11), in UTC.
budget_usage = Table(
    "budget_usage",
    metadata,
    Column("budget_id", String, primary_key=True),
    Column("period", String, primary_key=True),
    Column("used", BigInteger, nullable=False),
    Column("unpriced", BigInteger, nullable=False),
)

# ``value`` is encrypted; see app/auth/secrets.py.
secrets = Table(
    "secrets",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
    Column("created_at", UTCDateTime, nullable=False),
    Column("updated_at", UTCDateTime, nullable=False),
)

# Entries are written in the same transaction as the change, are never modified, and outlive their target.
audit = Table(
    "audit",
    metadata,
    Column("id", String, primary_key=True),
    Column("ts", UTCDateTime, nullable=False),
    Column("actor", String, nullable=False),
    Column("action", String, nullable=False),
    Column("target", String, nullable=False),
    Column("before", Json),
    Column("after", Json),
    *(Index(None, *column, "ts", "id") for column in ((), ("actor",), ("action",), ("target",))),
)
