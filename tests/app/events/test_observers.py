"""Observers are told of every event, in order and soon, and several at once."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.events.observers import Observers
from app.events.records import RequestEvent
from tests.support.unmakeable_record import UnmakeableRecord

pytestmark = pytest.mark.anyio

Event = Callable[..., RequestEvent]


class Told:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, events: Sequence[RequestEvent]) -> None:
        self.batches.append([event.request.request_id for event in events])


async def test_several_events_are_told_of_at_once_in_order(event: Event) -> None:
    told = Told()
    observers = Observers([told], linger_s=60, at_once=3)
    for number in range(7):
        observers(event(number))
    assert told.batches == [["req_000000", "req_000001", "req_000002"], ["req_000003", "req_000004", "req_000005"]]
    observers.flush()
    observers.flush()
    assert told.batches[2:] == [["req_000006"]]


async def test_one_event_alone_is_told_of_a_moment_later(event: Event, until: Callable[..., Any]) -> None:
    told = Told()
    observers = Observers([told], linger_s=0.001)
    observers(event(1))
    assert told.batches == []
    await until(lambda: told.batches == [["req_000001"]])
    observers(event(2))
    await until(lambda: told.batches[1:] == [["req_000002"]])


async def test_once_closed_nothing_waits(event: Event) -> None:
    told = Told()
    observers = Observers([told], linger_s=60)
    observers(event(1))
    await observers.aclose()
    observers(event(2))
    assert told.batches == [["req_000001"], ["req_000002"]]


async def test_a_fault_of_an_observer_costs_the_others_nothing(event: Event) -> None:
    def broken(_events: Sequence[RequestEvent]) -> None:
        raise RuntimeError("no")

    told = Told()
    observers = Observers([broken, told], linger_s=60, at_once=1)
    with capture_logs() as logs:
        observers(event(1))
    assert told.batches == [["req_000001"]]
    assert [entry["event"] for entry in logs] == ["observer_failed"]


async def test_an_event_that_cannot_be_made_costs_the_others_nothing(event: Event) -> None:
    told = Told()
    observers = Observers([told], linger_s=60, at_once=3)
    for made in (event(1), UnmakeableRecord(), event(2)):
        observers(made)
    assert told.batches == [["req_000001", "req_000002"]]


_REQUEST: ContextVar[str] = ContextVar("request", default="none")


async def test_what_is_bound_to_one_request_is_not_bound_where_several_are_told_of(event: Event) -> None:
    bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    observers = Observers([lambda _events: bound.set_result(_REQUEST.get())], linger_s=0)
    _REQUEST.set("one of them")
    observers(event(1))
    assert await bound == "none"
