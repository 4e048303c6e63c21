"""Per-key rate limits, as token buckets in memory."""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

_MINUTE_S = 60.0
ONE = 1 - 1e-6
"""One token minus a rounding error, so that a client that waits for ``Retry-After`` always succeeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Whether a request is allowed. ``wait_s`` is the time until the next request is allowed, and ``full_s`` is the
    time until the full limit is available again. Both are in seconds."""

    allowed: bool
    limit: int
    remaining: int
    wait_s: float
    full_s: float


class RateLimiter(Protocol):
    """Counts requests and limits their rate."""

    async def take(self, key: str, per_minute: int) -> Allowance:
        """Count one request by ``key``. ``per_minute`` is the key's limit. Never raises."""
        ...

    async def fault(self) -> str | None:
        """Return the current problem with storing the counts, or None."""
        ...

    async def aclose(self) -> None: ...


def allowance_of(per_minute: int, tokens: float, *, allowed: bool) -> Allowance:
    """Build the allowance for a request that leaves ``tokens`` tokens in the bucket."""
    rate = per_minute / _MINUTE_S
    return Allowance(
        allowed=allowed,
        limit=per_minute,
        remaining=max(0, int(tokens + 1 - ONE)),
        wait_s=0.0 if tokens >= ONE else (1 - tokens) / rate,
        full_s=(per_minute - tokens) / rate,
    )


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class InMemoryRateLimiter:
    """A token bucket per key, in the memory of this process. A client can send a minute's worth of requests at once,
    and then one every ``60 / per_minute`` seconds. ``clock`` returns the time in seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    async def take(self, key: str, per_minute: int) -> Allowance:
        now, rate = self._clock(), per_minute / _MINUTE_S
        bucket = self._buckets.setdefault(key, _Bucket(float(per_minute), now))
        bucket.tokens = min(per_minute, bucket.tokens + (now - bucket.at) * rate)
        bucket.at = now
        allowed = bucket.tokens >= ONE
        if allowed:
            bucket.tokens = max(0.0, bucket.tokens - 1)
        return allowance_of(per_minute, bucket.tokens, allowed=allowed)

    async def fault(self) -> str | None:
        return None

    async def aclose(self) -> None:
        pass
