"""An event that is made when it is read is the event made at once."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from app.events.records import RequestEvent

Event = Callable[..., RequestEvent]


def test_an_event_is_made_once_and_only_if_it_is_read(event: Event) -> None:
    made: list[int] = []

    def make() -> RequestEvent:
        made.append(1)
        return event(7)

    later = RequestEvent.later(make)
    assert made == []
    assert later.request.request_id == "req_000007"
    assert (later.decisions, later.claims, later.documents, later.shadow) == (
        event(7).decisions,
        event(7).claims,
        event(7).documents,
        (),
    )
    assert made == [1]


def test_it_is_equal_to_that_event_and_can_be_changed_like_it(event: Event) -> None:
    assert RequestEvent.later(lambda: event(7)) == event(7)
    assert replace(RequestEvent.later(lambda: event(7)), claims=()) == replace(event(7), claims=())
    assert repr(RequestEvent.later(lambda: event(7))) == repr(event(7))


def test_what_it_does_not_have_is_missing(event: Event) -> None:
    for one in (event(7), RequestEvent.later(lambda: event(7))):
        with pytest.raises(AttributeError, match="nothing"):
            getattr(one, "no" + "thing")


def test_threads_that_read_at_once_read_the_same(event: Event) -> None:
    both = threading.Barrier(2, timeout=10)

    def make() -> RequestEvent:
        both.wait()
        return event(7)

    later, found = RequestEvent.later(make), []
    threads = [threading.Thread(target=lambda: found.append(later.request)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [event(7).request] * 2
