"""How often a key may be used."""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

_MINUTE_S = 60.0
_ONE = 1 - 1e-9
"""Who waited as long as was said must not fail for the rounding of a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Whether a request may pass. ``wait_s``: seconds until the next one may; ``full_s``: until all of them may."""

    allowed: bool
    limit: int
    remaining: int
    wait_s: float
    full_s: float


class RateLimiter(Protocol):
    """Counts requests. One that several processes share is a matter of another implementation."""

    def take(self, key: str, per_minute: int) -> Allowance:
        """Ask for one request of ``key``, which may make ``per_minute`` of them."""
        ...


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class TokenBuckets:
    """A token bucket for each key, in the memory of this process: a minute's requests may come at once, after that one
    comes back every ``60 / per_minute`` seconds. ``clock`` counts seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def take(self, key: str, per_minute: int) -> Allowance:
        now, rate = self._clock(), per_minute / _MINUTE_S
        bucket = self._buckets.setdefault(key, _Bucket(float(per_minute), now))
        bucket.tokens = min(per_minute, bucket.tokens + (now - bucket.at) * rate)
        bucket.at = now
        allowed = bucket.tokens >= _ONE
        if allowed:
            bucket.tokens = max(0.0, bucket.tokens - 1)
        return Allowance(
            allowed=allowed,
            limit=per_minute,
            remaining=int(bucket.tokens),
            wait_s=0.0 if bucket.tokens >= _ONE else (1 - bucket.tokens) / rate,
            full_s=(per_minute - bucket.tokens) / rate,
        )
