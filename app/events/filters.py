"""The filter of requests and decisions."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Selects requests or decisions; None matches any value. ``since`` is inclusive, ``until`` exclusive.

    A request matches ``policy``, ``phase`` and ``reason_code`` if one of its decisions matches all of them. ``action``
    is that of the whole request for requests, and of the decision for decisions. ``shadow`` selects the decisions of
    shadow policies (True) or of enforced ones (False).
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
