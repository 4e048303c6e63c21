"""Passes events to observers in batches, because observing each event during its request would cost several times as
much."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context

import structlog

from app.events.records import RecordedRequest, RequestEvent

_log = structlog.stdlib.get_logger(__name__)

Observer = Callable[[Sequence[RequestEvent]], None]


def _event_of(record: RecordedRequest) -> RequestEvent | None:
    """Build the event of ``record``. If that fails, which would be a bug, log the error and return None."""
    try:
        return record.event()
    except Exception as error:
        _log.error("event_build_failed", error=f"{type(error).__name__}: {error}")
        return None


class Observers:
    """Passes all events to each observer in order. An event is passed on within ``linger_s`` seconds of its arrival,
    and a batch has at most ``at_once`` events. A failing observer does not affect the others."""

    def __init__(self, observers: Sequence[Observer], *, linger_s: float, at_once: int = 64) -> None:
        self._observers, self._at_once, self._linger_s = observers, at_once, linger_s
        self._waiting: list[RecordedRequest] = []
        self._timed = self._closed = False

    def __call__(self, record: RecordedRequest) -> None:
        self._waiting.append(record)
        if len(self._waiting) >= self._at_once or self._closed:
            self.flush()
        elif not self._timed:
            self._timed = True
            # The context is empty, so that the first request's variables are not bound for all of them.
            asyncio.get_running_loop().call_later(self._linger_s, self._late, context=Context())

    def _late(self) -> None:
        self._timed = False
        self.flush()

    def flush(self) -> None:
        """Pass on pending events now."""
        waiting, self._waiting = self._waiting, []
        events = [event for record in waiting if (event := _event_of(record)) is not None]
        for observer in self._observers if events else ():
            try:
                observer(events)
            except Exception:
                _log.exception("observer_failed")

    async def aclose(self) -> None:
        """Pass on pending events. From then on, events are passed on immediately."""
        self._closed = True
        self.flush()
