"""Which requests or decisions are meant."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which requests or decisions. None: any. ``since`` is the earliest time, ``until`` the first that is too late.

    A request matches ``policy``, ``phase`` and ``reason_code`` if one of its decisions matches them all; ``action`` is
    that of the whole request for requests, and of the decision for decisions. ``shadow``: decisions of policies that
    were not in force, or those of policies that were.
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
