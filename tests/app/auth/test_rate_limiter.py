"""Token buckets: a burst of a minute's requests, then an even pace."""

import pytest

from app.auth import InMemoryRateLimiter

pytestmark = pytest.mark.anyio


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_burst_of_one_minute_is_allowed_and_refills_evenly() -> None:
    clock = Clock()
    buckets = InMemoryRateLimiter(clock)
    burst = [await buckets.take("k", 4) for _ in range(4)]
    assert [allowance.remaining for allowance in burst] == [3, 2, 1, 0]
    assert all(allowance.allowed and allowance.limit == 4 for allowance in burst)
    refused = await buckets.take("k", 4)
    assert (refused.allowed, refused.remaining, refused.wait_s, refused.full_s) == (False, 0, 15.0, 60.0)
    clock.now += 14
    assert (await buckets.take("k", 4)).wait_s == pytest.approx(1.0)
    clock.now += 1
    assert (await buckets.take("k", 4)).allowed
    assert not (await buckets.take("k", 4)).allowed


async def test_idle_time_refills_at_most_one_minute() -> None:
    clock = Clock()
    buckets = InMemoryRateLimiter(clock)
    await buckets.take("k", 2)
    clock.now += 3600
    assert [(await buckets.take("k", 2)).allowed for _ in range(3)] == [True, True, False]


async def test_each_key_has_its_own_limit() -> None:
    buckets = InMemoryRateLimiter(Clock())
    assert [(await buckets.take(key, 1)).allowed for key in ("a", "b", "a", "b")] == [True, True, False, False]


async def test_changed_limit_applies_from_the_next_request() -> None:
    buckets = InMemoryRateLimiter(Clock())
    await buckets.take("k", 100)
    assert [(await buckets.take("k", 2)).allowed for _ in range(3)] == [True, True, False]
