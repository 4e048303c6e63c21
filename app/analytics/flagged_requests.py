"""Counts the requests that policies flagged. A request that a policy flagged in several phases counts once."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import case, func, select

from app.db.database import Database
from app.db.tables import decisions
from policies.types import SEVERITY, Action

_BY_SEVERITY = {severity: action for action, severity in SEVERITY.items()}
_FLAGS = {action.value: severity for action, severity in SEVERITY.items() if action is not Action.ALLOW}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlaggedRequests:
    """The number of requests that a policy flagged, by its strictest action on each. Enforced and shadow decisions are
    counted separately."""

    enforced: Counter[str] = field(default_factory=Counter)
    shadow: Counter[str] = field(default_factory=Counter)

    def of(self, action: Action) -> int:
        return self.enforced[action] + self.shadow[action]


async def count_flagged_requests(
    database: Database, *, since: datetime, policy_id: str | None = None
) -> Mapping[str, FlaggedRequests]:
    """Count the requests flagged since ``since``, by policy id. A policy flags a request if its strictest action isn't
    ``allow``.

    Raises DatabaseUnavailableError.
    """
    columns = decisions.c
    strictest = func.max(case(_FLAGS, value=columns.action)).label("severity")
    query = select(columns.policy_id, columns.shadow, strictest).where(columns.action.in_(_FLAGS), columns.ts >= since)
    if policy_id is not None:
        query = query.where(columns.policy_id == policy_id)
    by_request = query.group_by(columns.policy_id, columns.shadow, columns.request_id).subquery()
    keys = by_request.c.policy_id, by_request.c.shadow, by_request.c.severity
    found: dict[str, FlaggedRequests] = {}
    async with database.read() as connection:
        for policy, shadow, severity, count in await connection.execute(select(*keys, func.count()).group_by(*keys)):
            flagged = found.setdefault(policy, FlaggedRequests())
            (flagged.shadow if shadow else flagged.enforced)[_BY_SEVERITY[severity].value] += count
    return found
