"""Tables for alerts."""

from sqlalchemy import Boolean, Column, Double, Index, Integer, String, Table

from app.db.tables import Json, UTCDateTime, metadata

# ``due_at`` is the time of the next check. The worker that advances ``due_at`` checks the rule. ``firing_id`` and
# ``resolved_at`` hold the rule's state. A rule that is firing can't fire again until it is resolved.
alert_rules = Table(
    "alert_rules",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("enabled", Boolean, nullable=False),
    Column("document", Json, nullable=False),
    Column("created_at", UTCDateTime, nullable=False),
    Column("updated_at", UTCDateTime, nullable=False),
    Column("due_at", UTCDateTime, nullable=False),
    Column("checked_at", UTCDateTime),
    Column("value", Double),
    Column("requests", Integer),
    Column("firing_id", String),
    Column("resolved_at", UTCDateTime),
)

# The secrets of a destination are in ``secrets``, under its id.
alert_destinations = Table(
    "alert_destinations",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("kind", String, nullable=False),
    Column("created_at", UTCDateTime, nullable=False),
    Column("updated_at", UTCDateTime, nullable=False),
)

# The history of firings. Entries outlive their rule, so ``rule`` is a copy of it.
alert_firings = Table(
    "alert_firings",
    metadata,
    Column("id", String, primary_key=True),
    Column("rule_id", String, nullable=False),
    Column("rule", Json, nullable=False),
    Column("value", Double, nullable=False),
    Column("requests", Integer, nullable=False),
    Column("started_at", UTCDateTime, nullable=False),
    Column("resolved_at", UTCDateTime),
    Column("resolved_value", Double),
    Index(None, "started_at", "id"),
)

# Messages to send. Each message is written in the same transaction as the state change that it reports. ``next_at`` is
# the time of the next attempt.
alert_deliveries = Table(
    "alert_deliveries",
    metadata,
    Column("id", String, primary_key=True),
    Column("firing_id", String, nullable=False, index=True),
    Column("destination_id", String, nullable=False),
    Column("event", String, nullable=False),
    Column("status", String, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("next_at", UTCDateTime, nullable=False),
    Column("sent_at", UTCDateTime),
    Column("error", String),
    Index(None, "status", "next_at"),
)
