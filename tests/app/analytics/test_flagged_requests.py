"""The requests that policies flagged."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta

import pytest

from app.analytics.flagged_requests import FlaggedRequests, count_flagged_requests
from app.db.database import Database
from app.events.records import RequestEvent
from app.events.serialization import event_rows
from app.events.storage.insert import store
from policies.types import Action, Decision
from tests.app.conftest import EPOCH

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]


async def test_request_counts_once_by_each_policys_strictest_action(
    open_database: Open, event: Callable[..., RequestEvent], decision: Callable[..., Decision]
) -> None:
    def decisions(policy: str, *actions: Action) -> tuple[Decision, ...]:
        return tuple(decision(policy_id=policy, action=action) for action in actions)

    allow, warn, drop, block = Action
    logged: list[tuple[tuple[Decision, ...], tuple[Decision, ...]]] = [
        (decisions("pol_a", block), ()),  # before the time range
        ((*decisions("pol_a", warn, block, warn), *decisions("pol_b", allow, warn, drop)), ()),
        (decisions("pol_a", warn, warn), decisions("pol_b", block)),
        ((*decisions("pol_a", allow, warn), *decisions("pol_c", allow)), ()),
    ]
    async with open_database() as database:
        events = [replace(event(number, decisions=made), shadow=shadow) for number, (made, shadow) in enumerate(logged)]
        rows = [event_rows(each) for each in events]
        assert await store(database, rows) == []
        since = EPOCH + timedelta(seconds=1)
        found = await count_flagged_requests(database, since=since)
        one = await count_flagged_requests(database, since=since, policy_id="pol_b")
    of_b = FlaggedRequests()
    of_b.enforced["drop"] = of_b.shadow["block"] = 1
    assert set(found) == {"pol_a", "pol_b"}
    assert (found["pol_a"].enforced, found["pol_a"].shadow) == ({"block": 1, "warn": 2}, {})
    assert one == {"pol_b": of_b} == {"pol_b": found["pol_b"]}
    assert [found["pol_b"].of(action) for action in Action] == [0, 0, 1, 1]
