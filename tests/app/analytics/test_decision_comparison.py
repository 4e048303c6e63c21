"""What two policies decided on the same requests."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest

from app.analytics.decision_comparison import DecisionComparison, compare_decisions
from app.db.database import Database
from app.events.records import RequestEvent
from app.events.serialization import event_rows
from app.events.storage.insert import store
from policies.types import Action, Decision
from tests.app.conftest import EPOCH

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]
OLD, NEW = "pol_old", "pol_new"


async def test_strictest_decision_of_each_policy_counts(
    open_database: Open, event: Callable[..., RequestEvent], decision: Callable[..., Decision]
) -> None:
    """Requests on which only one of them decided don't count, nor do other policies, versions and earlier requests."""

    def decisions(policy: str, *actions: Action, version: int = 2) -> tuple[Decision, ...]:
        shared: dict[str, Any] = {"policy_id": policy, "policy_version": version}
        return tuple(decision(**shared, action=action, reason=f"{policy} {action}") for action in actions)

    allow, warn, block = Action.ALLOW, Action.WARN, Action.BLOCK
    logged = [
        (*decisions(OLD, allow), *decisions(NEW, block)),  # before the time range
        (*decisions(OLD, allow, warn), *decisions(NEW, allow, block, warn)),
        (*decisions(OLD, warn), *decisions(NEW, block)),
        (*decisions(OLD, block), *decisions(NEW, allow)),
        (*decisions(OLD, allow), *decisions(NEW, allow), *decisions("pol_other", block)),
        (*decisions(OLD, allow), *decisions(NEW, block, version=1)),
        decisions(OLD, block),
        decisions(NEW, block),
    ]

    async def compared(show: int = 9) -> DecisionComparison:
        since = EPOCH + timedelta(seconds=1)
        return await compare_decisions(database, NEW, 2, OLD, since=since, show=show)

    async with open_database() as database:
        assert await compared() == DecisionComparison(requests=0, moves=[], items=[])
        rows = [event_rows(event(number, decisions=made)) for number, made in enumerate(logged)]
        assert await store(database, rows) == []
        found = await compared()
        assert (found.requests, found.changed) == (4, 3)
        assert found.moves == [("warn", "block", 2), ("block", "allow", 1)]
        assert [(item.request_id, item.before, item.after, item.reason) for item in found.items] == [
            ("req_000003", "block", "allow", "pol_old block"),
            ("req_000002", "warn", "block", "pol_new block"),
            ("req_000001", "warn", "block", "pol_new block"),
        ]
        assert len((await compared(show=1)).items) == 1
