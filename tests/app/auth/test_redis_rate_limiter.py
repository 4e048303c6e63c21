"""Rate limits in Redis: workers count together, or separately while Redis is unavailable."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis
from structlog.testing import capture_logs

from app.auth import InMemoryRateLimiter, RedisRateLimiter, check_redis, open_rate_limiter
from app.settings import SettingsError

pytestmark = pytest.mark.anyio

Until = Callable[..., Any]


@pytest.fixture
def redis_url() -> str:
    url = os.environ.get("GROUNDLANE_TEST_REDIS_URL")
    if url is None:
        pytest.skip("set GROUNDLANE_TEST_REDIS_URL (redis://…) to run this with Redis")
    return url


@pytest.fixture
def key() -> str:
    return f"key_{uuid4().hex}"


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[RedisRateLimiter]:
    """``answer_s`` is long by default, so that a pause of the machine isn't mistaken for one of Redis."""
    buckets = RedisRateLimiter(url, **{"answer_s": 30.0, **options})
    try:
        yield buckets
    finally:
        await buckets.aclose()


class Way:
    """A proxy to Redis that can block either direction."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname, parts.port
        self.open = asyncio.Event()
        self.open.set()
        self._carrying: set[asyncio.Task[Any]] = set()
        self._ends: set[asyncio.StreamWriter] = set()

    async def aclose(self) -> None:
        self.open.set()
        for end in self._ends:
            end.close()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        self._ends |= {writer, there_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, there_writer))
                group.create_task(self._copy(there_reader, writer))
        except* OSError:
            pass

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            await self.open.wait()
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def blockable(url: str) -> AsyncIterator[tuple[Way, str]]:
    way = Way(url)
    server = await asyncio.start_server(way.carry, "127.0.0.1", 0)
    try:
        yield way, f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()
        await way.aclose()


async def test_burst_of_one_minute_is_allowed_and_refills_evenly(redis_url: str, key: str) -> None:
    async with opened(redis_url) as buckets:
        began = time.monotonic()
        burst = [await buckets.take(key, 4) for _ in range(4)]
        assert all(allowance.allowed and allowance.limit == 4 for allowance in burst)
        refused = await buckets.take(key, 4)
        passed = time.monotonic() - began
        if passed < 15:  # the bucket has not refilled meanwhile
            assert [allowance.remaining for allowance in burst] == [3, 2, 1, 0]
            assert (refused.allowed, refused.remaining) == (False, 0)
            assert 15 - passed - 0.01 <= refused.wait_s <= 15
            assert 60 - passed - 0.01 <= refused.full_s <= 60


async def test_workers_share_one_count_in_any_interleaving(redis_url: str, key: str) -> None:
    async with opened(redis_url) as one, opened(redis_url) as other:
        began = time.monotonic()
        takes = [(one, other)[number % 2].take(key, 10) for number in range(60)]
        allowed = sum(allowance.allowed for allowance in await asyncio.gather(*takes))
        assert 10 <= allowed <= 10 + (time.monotonic() - began) / 6 + 1e-3
        assert await one.fault() is None


async def test_redis_stores_only_an_id_and_a_time_that_expire(redis_url: str, key: str) -> None:
    async with opened(redis_url) as buckets, Redis.from_url(redis_url) as redis:
        await buckets.take(key, 1)
        await buckets.take(f"{key}-other", 1)
        assert sorted([name async for name in redis.scan_iter(match=f"*{key}*")]) == [
            f"groundlane:rate:{key}".encode(),
            f"groundlane:rate:{key}-other".encode(),
        ]
        assert 0 < await redis.pttl(f"groundlane:rate:{key}") <= 60_000


async def test_lost_redis_script_is_loaded_again(redis_url: str, key: str) -> None:
    async with opened(redis_url) as buckets, Redis.from_url(redis_url) as redis:
        assert (await buckets.take(key, 100)).remaining == 99
        await redis.script_flush()
        assert (await buckets.take(key, 100)).allowed
        assert await buckets.fault() is None


@pytest.fixture
def closed_port(unused_port: int) -> str:
    return f"redis://user:the-password@127.0.0.1:{unused_port}/0"


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that stays closed during the test, because it is bound without listening."""
    import socket

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])


async def test_without_redis_each_worker_counts_alone_and_logs_it_once(closed_port: str) -> None:
    alone = 0

    def counted_alone() -> None:
        nonlocal alone
        alone += 1

    with capture_logs() as logs:
        async with opened(closed_port, counted_alone=counted_alone) as buckets:
            allowed = [(await buckets.take("k", 2)).allowed for _ in range(3)]
            fault = await buckets.fault()
    assert allowed == [True, True, False]
    assert alone == 3
    assert fault is not None
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("rate_limits_not_shared", "warning")
    assert "the-password" not in str(logs)


async def test_unresponsive_redis_is_skipped_and_used_again_later(redis_url: str, key: str, until: Until) -> None:
    async with blockable(redis_url) as (way, url), opened(url, answer_s=1.0) as slow, opened(redis_url) as straight:
        way.open.clear()
        taken = await asyncio.gather(*(slow.take(key, 50) for _ in range(5)))
        assert all(allowance.allowed for allowance in taken)
        assert await slow.fault() is not None
        way.open.set()

        async def back() -> bool:
            return await slow.fault() is None

        await until(back, 60.0)
        # No other request receives the answers to the blocked ones.
        assert (await slow.take(key, 7_000)).limit == 7_000
        assert (await straight.take(key, 7_000)).allowed


async def test_invalid_redis_url_stops_the_start_and_is_not_shown() -> None:
    with pytest.raises(SettingsError, match="GROUNDLANE_REDIS_URL") as raised:
        check_redis(SecretStr("http://:the-password@redis"))
    assert "the-password" not in str(raised.value)
    check_redis(SecretStr("rediss://:the-password@redis:6380/2"))
    check_redis(None)


async def test_limits_are_in_memory_without_the_setting() -> None:
    limiter = open_rate_limiter(None)
    assert isinstance(limiter, InMemoryRateLimiter)
    assert await limiter.fault() is None
    await limiter.aclose()
