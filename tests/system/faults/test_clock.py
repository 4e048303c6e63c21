"""The wall clock changes while the gateway runs: durations, ids, limits and retention don't depend on it."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select
from structlog.testing import capture_logs

from app.db.database import Database
from app.db.tables import requests
from app.events.serialization import event_rows
from app.events.storage.insert import store
from app.events.storage.retention import Retention
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import Reply
from tests.system.faults.support.clock import Clock, adjustable_clock
from tests.system.faults.support.scripts import DOCUMENTS, FRAMES, TEXT

Open = Callable[[], AbstractAsyncContextManager[Database]]
BODY = {"model": "m", "messages": [{"role": "user", "content": "How long is the warranty?"}]}


@pytest.fixture
def clock() -> Iterator[Clock]:
    with adjustable_clock() as clock:
        yield clock


@pytest.mark.parametrize("jump", [timedelta(hours=-3), timedelta(days=-400), timedelta(days=400)], ids=str)
def test_request_is_timed_by_a_monotonic_clock(gateway: Gateway, clock: Clock, jump: timedelta) -> None:
    """Changed while the reply arrives: every time in its record is in the range of seconds, not of hours."""
    gateway.upstream.script(Reply(chunks=FRAMES, gated=True))
    with gateway.call({**BODY, "stream": True, "documents": DOCUMENTS}) as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(2)
        exchange.wait_written(2)
        clock.ahead = jump
        exchange.release(len(FRAMES))
        assert call.read_all().endswith(b"data: [DONE]\n\n")
    row = gateway.trace(call.request_id).request
    assert row["status"] == "completed"
    for name in ("upstream_ms", "judge_ms", "total_ms"):
        assert 0 <= row[name] < 600_000, name
    assert abs(datetime.fromisoformat(row["ts"]) - datetime.now(UTC)) < timedelta(hours=1)


def test_ids_limits_and_changes_do_not_depend_on_the_clock(gateway: Gateway, clock: Clock) -> None:
    """It goes back and forth: ids are unique, a limit stays used up, policies change, and every event is found."""
    gateway.upstream.script(answer(TEXT, stream=False))
    key = gateway.admin.post("/keys", json={"name": "clock", "requests_per_minute": 3}).json()
    gateway.rows(0)
    ids, statuses = [], []
    for hours in (0, -2, 5, 90):
        clock.ahead = timedelta(hours=hours)
        with gateway.call(BODY, headers={"authorization": f"Bearer {key['key']}"}) as call:
            call.read_all()
            statuses.append(call.status)
            ids.append(call.header("x-groundlane-request-id"))
    assert statuses == [200, 200, 200, 429]
    assert len({json.dumps(gateway.trace(str(id)).request["request_id"]) for id in ids[:3]}) == 3
    clock.ahead = timedelta(hours=-6)
    policy = gateway.policy("grounding", {"contradiction_action": "block"}, scope={"agents": ["nobody"]})
    changed = gateway.admin.patch(f"/policies/{policy['id']}", json={"enabled": False})
    assert (changed.status_code, changed.json()["version"]) == (200, 2)


@pytest.mark.anyio
async def test_clock_change_deletes_nothing(
    open_database: Open, event: Callable[..., Any], clock: Clock, until: Callable[..., Any]
) -> None:
    """Years ahead, all of the log would be too old: it is kept, and the log says why."""
    async with open_database() as database:
        await store(database, [event_rows(event(1, ts=datetime.now(UTC)))])
        retention = Retention(database, days=30, every_s=0.01)
        clock.ahead = timedelta(days=4_000)
        with capture_logs() as lines:

            def told(name: str) -> int:
                return sum(line["event"] == name for line in lines)

            retention.start()
            await until(lambda: told("clock_changed") == 1)
            clock.ahead = timedelta()
            await until(lambda: told("events_pruned") > 0)
            await retention.aclose()
        async with database.read() as connection:
            assert (await connection.execute(select(func.count()).select_from(requests))).scalar_one() == 1


@pytest.mark.anyio
async def test_worker_with_a_fast_clock_does_not_delay_pruning_by_others(
    open_database: Open, event: Callable[..., Any], clock: Clock
) -> None:
    async with open_database() as database:
        clock.ahead = timedelta(days=4_000)
        assert await Retention(database, days=30)._turn()
        clock.ahead = timedelta()
        assert await Retention(database, days=30)._turn()
        assert not await Retention(database, days=30)._turn()
