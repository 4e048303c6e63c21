"""Observers receive every event, in order, promptly, and in batches."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.events.observers import Observers
from app.events.records import RequestEvent
from tests.support.storage.unmakeable_record import UnmakeableRecord

pytestmark = pytest.mark.anyio

Event = Callable[..., RequestEvent]


class Told:
    """An observer that records events."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, events: Sequence[RequestEvent]) -> None:
        self.batches.append([event.request.request_id for event in events])


async def test_several_events_are_observed_at_once_in_order(event: Event) -> None:
    told = Told()
    observers = Observers([told], linger_s=60, at_once=3)
    for number in range(7):
        observers(event(number))
    assert told.batches == [["req_000000", "req_000001", "req_000002"], ["req_000003", "req_000004", "req_000005"]]
    observers.flush()
    observers.flush()
    assert told.batches[2:] == [["req_000006"]]


async def test_single_event_is_observed_a_moment_later(event: Event, until: Callable[..., Any]) -> None:
    told = Told()
    observers = Observers([told], linger_s=0.001)
    observers(event(1))
    assert told.batches == []
    await until(lambda: told.batches == [["req_000001"]])
    observers(event(2))
    await until(lambda: told.batches[1:] == [["req_000002"]])


async def test_nothing_is_pending_after_closing(event: Event) -> None:
    told = Told()
    observers = Observers([told], linger_s=60)
    observers(event(1))
    await observers.aclose()
    observers(event(2))
    assert told.batches == [["req_000001"], ["req_000002"]]


async def test_failing_observer_does_not_affect_the_others(event: Event) -> None:
    def broken(_events: Sequence[RequestEvent]) -> None:
        raise RuntimeError("no")

    told = Told()
    observers = Observers([broken, told], linger_s=60, at_once=1)
    with capture_logs() as logs:
        observers(event(1))
    assert told.batches == [["req_000001"]]
    assert [entry["event"] for entry in logs] == ["observer_failed"]


async def test_event_that_cannot_be_built_does_not_affect_the_others(event: Event) -> None:
    told = Told()
    observers = Observers([told], linger_s=60, at_once=3)
    for made in (event(1), UnmakeableRecord(), event(2)):
        observers(made)
    assert told.batches == [["req_000001", "req_000002"]]


_REQUEST: ContextVar[str] = ContextVar("request", default="none")


async def test_request_context_is_not_bound_for_a_batch(event: Event) -> None:
    bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    observers = Observers([lambda _events: bound.set_result(_REQUEST.get())], linger_s=0)
    _REQUEST.set("one of them")
    observers(event(1))
    assert await bound == "none"
