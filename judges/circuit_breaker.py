"""A circuit breaker for a service that keeps failing."""

from time import monotonic
from typing import Final

MAX_FAILURES: Final = 5
"""Number of consecutive failures that open the circuit."""
OPEN_CIRCUIT_S: Final = 15.0
"""Seconds for which the circuit stays open. Calls fail at once during this time, so that sentences don't wait for the
service until they time out."""
SLOW_S: Final = 2.0
"""If the caller cancels a call after more than this many seconds, the call counts as a failure of the service."""


class CircuitBreaker:
    """Counts the consecutive failures of one service. The caller asks ``is_open`` before each call, and reports each
    outcome."""

    def __init__(self) -> None:
        self._failures = 0
        self._open_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether calls to the service are suspended."""
        return monotonic() < self._open_until

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self) -> bool:
        """Count a failure. Return whether it opens the circuit, so that the caller can log that once."""
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            self._open_until = monotonic() + OPEN_CIRCUIT_S
        return self._failures == MAX_FAILURES

    def cancelled(self, after_s: float) -> bool:
        """Count a call that was cancelled after ``after_s`` seconds. Like ``failed``, return whether this opens the
        circuit."""
        return self.failed() if after_s > SLOW_S else False
