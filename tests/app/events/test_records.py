"""An event is a record whose rows have already been built."""

from collections.abc import Callable

from app.events.records import RequestEvent


def test_event_equals_its_record(event: Callable[..., RequestEvent]) -> None:
    made = event(7)
    assert made.event() is made
