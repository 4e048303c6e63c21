"""The filter for requests and decisions."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Selects requests or decisions; None matches any value. ``since`` is inclusive, ``until`` exclusive.

    A request matches ``policy``, ``phase`` and ``reason_code`` if one of its decisions matches all of them. For
    requests, ``action`` is the action of the whole request; for decisions, that of the decision. ``shadow`` selects
    decisions by shadow policies (True) or by enforced ones (False).
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
