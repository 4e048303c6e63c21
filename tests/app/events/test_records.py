"""An event is a record whose rows are made already."""

from collections.abc import Callable

from app.events.records import RequestEvent


def test_an_event_is_its_own_record(event: Callable[..., RequestEvent]) -> None:
    made = event(7)
    assert made.event() is made
