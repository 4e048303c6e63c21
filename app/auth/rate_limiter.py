"""How often a key may be used."""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

_MINUTE_S = 60.0
ONE = 1 - 1e-6
"""A token. Who waited as long as was said must not fail for the rounding of a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Whether a request may pass. ``wait_s``: seconds until the next one may; ``full_s``: until all of them may."""

    allowed: bool
    limit: int
    remaining: int
    wait_s: float
    full_s: float


class RateLimiter(Protocol):
    """Counts requests."""

    async def take(self, key: str, per_minute: int) -> Allowance:
        """Ask for one request of ``key``, which may make ``per_minute`` of them. Never raises."""
        ...

    async def fault(self) -> str | None:
        """What is wrong with the place where requests are counted, as it is now; None: nothing."""
        ...

    async def aclose(self) -> None: ...


def allowance_of(per_minute: int, tokens: float, *, allowed: bool) -> Allowance:
    """What is said to a request that leaves ``tokens``."""
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
    """A token bucket for each key, in the memory of this process: a minute's requests may come at once, after that one
    comes back every ``60 / per_minute`` seconds. ``clock`` counts seconds.
    """

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
