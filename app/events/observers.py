"""Passes events to observers, several at once: observing each one in its own request would cost a multiple."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context

import structlog

from app.events.records import RecordedRequest, RequestEvent

_log = structlog.stdlib.get_logger(__name__)

Observer = Callable[[Sequence[RequestEvent]], None]


def _event_of(record: RecordedRequest) -> RequestEvent | None:
    """The event of ``record``; None if building it fails, a bug of ours that is logged."""
    try:
        return record.event()
    except Exception as error:
        _log.error("event_build_failed", error=f"{type(error).__name__}: {error}")
        return None


class Observers:
    """Passes every event to each of ``observers``, in order, at most ``linger_s`` after it arrived and at most
    ``at_once`` at a time. An observer that fails does not affect the others."""

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
            # An empty context, so that the variables of the first request are not bound for all of them.
            asyncio.get_running_loop().call_later(self._linger_s, self._late, context=Context())

    def _late(self) -> None:
        self._timed = False
        self.flush()

    def flush(self) -> None:
        """Pass on waiting events now."""
        waiting, self._waiting = self._waiting, []
        events = [event for record in waiting if (event := _event_of(record)) is not None]
        for observer in self._observers if events else ():
            try:
                observer(events)
            except Exception:
                _log.exception("observer_failed")

    async def aclose(self) -> None:
        """Pass on waiting events, and from now on each event at once."""
        self._closed = True
        self.flush()
