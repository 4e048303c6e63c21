"""Rate limits shared by all workers and machines, implemented as token buckets in Redis."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from pydantic import SecretStr

from app.auth.rate_limiter import Allowance, InMemoryRateLimiter, RateLimiter, allowance_of
from app.settings import SettingsError

_log = structlog.stdlib.get_logger(__name__)
_SETTING = "GROUNDLANE_REDIS_URL"
_ANSWER_S = 0.25
"""The maximum time that a request waits for Redis."""
_CONNECTIONS = 32
_FIRST_RETRY_S, _LAST_RETRY_S = 0.5, 10.0
_MICROSECONDS = 1e6

# A bucket is stored as the time when it will be full, according to the Redis clock. A full bucket is deleted. Times are
# in microseconds, with a tolerance of one for rounding.
_TAKE = """
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local interval = 60000000 / ARGV[1]
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local allowed = full - now + interval <= 60000000 + 1
if allowed then
    full = full + interval
    redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000))
end
return {allowed and 1 or 0, full - now}
"""


def check_redis(url: SecretStr | None) -> None:
    """Check the Redis URL. Raises SettingsError if it is invalid or the Redis library is missing."""
    if url is None:
        return
    try:
        from redis.asyncio.connection import parse_url
    except ModuleNotFoundError:
        raise SettingsError(f"{_SETTING} requires the extra redis: pip install 'groundlane[redis]'") from None
    try:
        parse_url(url.get_secret_value())
    except ValueError:
        raise SettingsError(f"{_SETTING}: expected a URL with redis://, rediss:// or unix://") from None


def open_rate_limiter(url: SecretStr | None, *, counted_alone: Callable[[], None] = lambda: None) -> RateLimiter:
    """Open a rate limiter that counts in Redis or, without a ``url``, in the memory of this process. Raises
    SettingsError.

    ``counted_alone`` is called for each request that could not be counted in Redis.
    """
    check_redis(url)
    return (
        InMemoryRateLimiter() if url is None else RedisRateLimiter(url.get_secret_value(), counted_alone=counted_alone)
    )


class RedisRateLimiter:
    """Like ``InMemoryRateLimiter``, but counts in Redis. Each request takes one atomic step and one round trip.

    While Redis is unavailable or slow, each process counts separately and logs this once. From time to time, one
    request tries Redis again. ``answer_s`` is the maximum time that a request waits for Redis, in seconds.
    """

    def __init__(
        self, url: str, *, counted_alone: Callable[[], None] = lambda: None, answer_s: float = _ANSWER_S
    ) -> None:
        from redis.asyncio import BlockingConnectionPool, Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        # One deadline covers the whole operation, so the library's timeouts for each part are disabled.
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=None,
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis = Redis.from_pool(pool)
        self._script: Callable[..., Awaitable[Any]] = self._redis.register_script(_TAKE)
        self._alone, self._counted_alone = InMemoryRateLimiter(), counted_alone
        self._answer_s = answer_s
        self._retry_s = _FIRST_RETRY_S
        self._retry_at: float | None = None
        """When to try Redis again, or None while it is available."""

    async def take(self, key: str, per_minute: int) -> Allowance:
        if self._may_try():
            answer = await self._ask(lambda: self._script(keys=[f"groundlane:rate:{key}"], args=[per_minute]))
            if answer is not None:
                allowed, full_us = answer
                used = full_us / _MICROSECONDS * per_minute / 60
                return allowance_of(per_minute, per_minute - used, allowed=bool(allowed))
        self._counted_alone()
        return await self._alone.take(key, per_minute)

    async def fault(self) -> str | None:
        await self._ask(self._redis.ping)
        return None if self._retry_at is None else "Redis does not respond, so each worker counts requests separately"

    async def aclose(self) -> None:
        await self._redis.aclose()

    def _may_try(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._retry_at is None:
            return True
        if now < self._retry_at:
            return False
        self._retry_at = now + self._retry_s  # This request tries Redis. Later requests don't wait for its result.
        return True

    def _lost(self, error: Exception, *, again: bool) -> None:
        if self._retry_at is None:
            _log.warning("rate_limits_not_shared", error=type(error).__name__)
            self._retry_s = _FIRST_RETRY_S
        elif again:
            self._retry_s = min(self._retry_s * 2, _LAST_RETRY_S)
        else:
            return  # A concurrent request has already noticed the failure.
        self._retry_at = asyncio.get_running_loop().time() + self._retry_s

    async def _ask(self, ask: Callable[[], Any]) -> Any:
        """Return the response from Redis, or None if there was none."""
        from redis.exceptions import RedisError

        was_away = self._retry_at is not None
        try:
            async with asyncio.timeout(self._answer_s):
                answer = await ask()
        except (RedisError, OSError, TimeoutError) as error:
            self._lost(error, again=was_away)
            return None
        if self._retry_at is not None:
            _log.info("rate_limits_shared_again")
            self._retry_at = None
        return answer
