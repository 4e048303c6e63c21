"""The filter for requests and decisions, and the sort order of requests."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Selects requests or decisions. Fields that are None match any value. ``since`` is inclusive, ``until`` exclusive.

    A request matches ``policy``, ``phase`` and ``reason_code`` if one of its decisions matches all of them. If the
    filter selects requests, ``action`` is the action taken on the whole request. If it selects decisions, ``action`` is
    the action of the decision. ``shadow`` selects decisions by shadow policies (True) or by enforced ones (False).

    The other fields apply only to requests. They match the verdict, the status, the prefix of the gateway key, the
    total latency in milliseconds, the trust score, and the beginning of the id. Latency and score bounds are inclusive.
    ``text`` is a search of the stored text; see ``app.events.search.search_query``.
    """

    since: datetime | None = None
    until: datetime | None = None
    agent: str | None = None
    model: str | None = None
    run_id: str | None = None
    action: str | None = None
    policy: str | None = None
    phase: str | None = None
    reason_code: str | None = None
    shadow: bool | None = None
    verdict: str | None = None
    status: str | None = None
    key_prefix: str | None = None
    min_ms: float | None = None
    max_ms: float | None = None
    min_trust: float | None = None
    max_trust: float | None = None
    id_prefix: str | None = None
    text: str | None = None


SortColumn = Literal["time", "latency", "trust", "tokens"]


@dataclass(frozen=True, slots=True)
class Order:
    """The sort order of requests. Requests without a value come last in both directions."""

    column: SortColumn = "time"
    descending: bool = True


NEWEST_FIRST = Order()

Key = tuple[Any, str]
"""The end of a page: the id of its last row, and that row's value in the sort column (a time, a number, or None)."""
