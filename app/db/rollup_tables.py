"""The rollup tables: request and decision statistics by hour and day, with latency histograms.

The event writer updates the rollups in the transaction that stores the events; see
``app.events.rollups.rollup_update``.
"""

from bisect import bisect_left
from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, Column, ColumnElement, Double, Integer, String, Table

from app.db.tables import UTCDateTime, metadata

HOUR, DAY = 3_600, 86_400
"""The values of ``step``. A row covers ``step`` seconds, beginning at ``start`` (UTC)."""
NONE = ""
"""In a key, this value means "no agent", "no model", "no gateway key" or "no reason code". In the policy column, it
means all policies."""

_LONGEST_NAME = 200

BOUNDS_MS = tuple(2.0**power for power in range(-4, 17))
"""Upper bounds of the histogram bins. Each bound is twice the previous one, and the last bin has no upper bound."""
BINS = range(len(BOUNDS_MS) + 1)

PARTS = ("total", "upstream", "judge", "gateway")
"""The parts into which a request's duration is divided. ``gateway`` is the total time minus ``upstream`` and
``judge``."""
VERDICTS = ("supported", "has_contradictions", "has_unverifiable", "no_claims", "no_sources", "not_checked")
STATUSES = ("completed", "blocked", "cancelled", "incomplete", "upstream_error", "failed")


def bin_of(latency_ms: float) -> int:
    """Return the histogram bin for a latency. A bin includes its upper bound."""
    return bisect_left(BOUNDS_MS, latency_ms)


def key_of(name: str | None) -> str:
    """Convert an agent or model name to its form in a key. No name becomes ``NONE``, and long names are truncated to
    fit the index."""
    return (name or NONE)[:_LONGEST_NAME]


def _number(name: str, kind: type[Integer | Double[float]] = Integer) -> Column[Any]:
    return Column(name, kind, nullable=False, server_default="0")


def _latency(part: str) -> list[Column[Any]]:
    """Build the columns for one latency: the count, the sum and the maximum (in milliseconds), and the count in each
    bin."""
    return [
        _number(f"{part}_count"),
        _number(f"{part}_ms", Double),
        _number(f"{part}_max", Double),
        *(_number(f"{part}_{bin:02d}") for bin in BINS),
    ]


# A row for a policy counts the requests that the policy decided on, whether enforced or in shadow.
request_statistics = Table(
    "request_statistics",
    metadata,
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("start", UTCDateTime, primary_key=True),
    Column("policy_id", String, primary_key=True),
    Column("agent", String, primary_key=True),
    Column("model", String, primary_key=True),
    Column("action", String, primary_key=True),
    _number("requests"),
    *(_number(f"verdict_{verdict}") for verdict in VERDICTS),
    *(_number(f"status_{status}") for status in STATUSES),
    # Token counts are whole numbers, but an upstream may report numbers that don't fit in an integer column.
    _number("prompt_tokens", Double),
    _number("completion_tokens", Double),
    _number("trust_count"),
    _number("trust_sum", Double),
    *(column for part in PARTS for column in _latency(part)),
)

decision_statistics = Table(
    "decision_statistics",
    metadata,
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("start", UTCDateTime, primary_key=True),
    Column("policy_id", String, primary_key=True),
    Column("shadow", Boolean, primary_key=True),
    Column("category", String, primary_key=True),
    Column("phase", String, primary_key=True),
    Column("action", String, primary_key=True),
    Column("reason_code", String, primary_key=True),
    Column("agent", String, primary_key=True),
    Column("model", String, primary_key=True),
    Column("policy_name", String, nullable=False),
    _number("decisions"),
    *_latency("latency"),
)

# Requests and tokens by gateway key. They are separate from the statistics above, because there are many keys and the
# rows above are large.
usage_statistics = Table(
    "usage_statistics",
    metadata,
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("start", UTCDateTime, primary_key=True),
    Column("policy_id", String, primary_key=True),
    Column("agent", String, primary_key=True),
    Column("model", String, primary_key=True),
    Column("key_prefix", String, primary_key=True),
    _number("requests"),
    _number("prompt_tokens", Double),
    _number("completion_tokens", Double),
    sqlite_with_rowid=False,
)

STATISTICS = (request_statistics, decision_statistics, usage_statistics)


def in_days(table: Table, since: datetime, until: datetime) -> tuple[ColumnElement[bool], ...]:
    """Build the conditions that select whole-day rows from ``since`` until ``until``."""
    return table.c.step.in_((HOUR, DAY)), table.c.start >= since, table.c.start < until
