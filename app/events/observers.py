"""Telling of events: several at once, because code that runs for one request in many costs each a multiple."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context

import structlog

from app.events.records import RecordedRequest, RequestEvent

_log = structlog.stdlib.get_logger(__name__)

Observer = Callable[[Sequence[RequestEvent]], None]


def _event_of(record: RecordedRequest) -> RequestEvent | None:
    """The event of ``record``; None if a bug keeps it from being made, which is logged."""
    try:
        return record.event()
    except Exception as error:
        _log.error("event_build_failed", error=f"{type(error).__name__}: {error}")
        return None


class Observers:
    """Each of ``observers`` is told of every event, in order, ``linger_s`` after it was given at the latest, and with
    no more than ``at_once``. A fault of one costs the others nothing."""

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
            # Nothing of the request that happens to be the first is bound when all of them are told of.
            asyncio.get_running_loop().call_later(self._linger_s, self._late, context=Context())

    def _late(self) -> None:
        self._timed = False
        self.flush()

    def flush(self) -> None:
        """Tell of what waits, now."""
        waiting, self._waiting = self._waiting, []
        events = [event for record in waiting if (event := _event_of(record)) is not None]
        for observer in self._observers if events else ():
            try:
                observer(events)
            except Exception:
                _log.exception("observer_failed")

    async def aclose(self) -> None:
        """Tell of what waits; from now on, of each event at once."""
        self._closed = True
        self.flush()
