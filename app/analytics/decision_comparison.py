"""Compares what two policies decided on the same requests, for example a shadow policy and the one that it may
replace."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, select

from app.db.database import Database
from app.db.tables import decisions
from policies.types import SEVERITY, Action

_MOST_DECISIONS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedDifferently:
    """A request on which two policies disagree. ``before`` and ``after`` are the strictest actions of the two policies.
    ``reason`` is the reason of the stricter policy."""

    request_id: str
    ts: datetime
    agent: str | None
    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionComparison:
    """``requests`` is the number of requests on which both policies decided. ``moves`` counts the requests on which the
    policies disagree, by each policy's action. ``items`` lists the newest of the requests in ``moves``."""

    requests: int
    moves: Sequence[tuple[str, str, int]]
    items: Sequence[DecidedDifferently]

    @property
    def changed(self) -> int:
        return sum(count for _, _, count in self.moves)


async def compare_decisions(
    database: Database, policy_id: str, version: int, other_id: str, *, since: datetime, show: int
) -> DecisionComparison:
    """Compare the decisions of ``version`` of one policy with the decisions of another policy.

    Includes decisions in shadow mode. Reads up to 10,000 decisions of each policy since ``since``, newest first, and
    lists up to ``show`` requests. Raises DatabaseUnavailableError.
    """
    columns = decisions.c
    ours = columns.policy_id == policy_id, columns.policy_version == version, columns.ts >= since
    async with database.read() as connection:
        new = (await connection.execute(_newest(*ours))).all()
        first = new[-1].ts if new else since
        old = (await connection.execute(_newest(columns.policy_id == other_id, columns.ts >= first))).all()
    after, before = _strictest(new), _strictest(old)
    both = [(before[id], each) for id, each in after.items() if id in before]
    different = [(b, a) for b, a in both if b.action != a.action]
    counts = Counter((b.action, a.action) for b, a in different)
    return DecisionComparison(
        requests=len(both),
        moves=[(*actions, count) for actions, count in counts.most_common()],
        items=[
            DecidedDifferently(
                request_id=a.request_id,
                ts=a.ts,
                agent=a.agent,
                before=b.action,
                after=a.action,
                reason=max(b, a, key=_severity).reason,
            )
            for b, a in different[:show]
        ],
    )


def _newest(*conditions: ColumnElement[bool]) -> Any:
    columns = decisions.c
    query = select(columns.request_id, columns.ts, columns.agent, columns.action, columns.reason).where(*conditions)
    return query.order_by(columns.ts.desc(), columns.id.desc()).limit(_MOST_DECISIONS)


def _strictest(rows: Iterable[Any]) -> dict[str, Any]:
    """Return the strictest decision on each request. A policy can make one decision in each phase."""
    found: dict[str, Any] = {}
    for row in rows:
        if row.request_id not in found or _severity(row) > _severity(found[row.request_id]):
            found[row.request_id] = row
    return found


def _severity(row: Any) -> int:
    return SEVERITY[Action(row.action)]
