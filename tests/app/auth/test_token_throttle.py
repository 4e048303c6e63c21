"""Wrong admin tokens: counted per address, with growing delays."""

import pytest

from app.auth.token_throttle import WrongTokens

pytestmark = pytest.mark.anyio


class Bench:
    def __init__(self) -> None:
        self.now, self.counted = 0.0, 0
        self.pauses: list[float] = []
        self.tokens = WrongTokens(self.count, sleep=self.sleep, clock=lambda: self.now)

    def count(self) -> None:
        self.counted += 1

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


async def test_delay_grows_up_to_two_seconds_per_address() -> None:
    at = Bench()
    for _ in range(12):
        await at.tokens.refuse("10.0.0.1")
    assert at.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, *[2.0] * 7]
    await at.tokens.refuse("10.0.0.2")
    assert (at.pauses[-1], at.counted) == (0.1, 13)


async def test_failures_are_forgotten_after_a_quiet_minute() -> None:
    at = Bench()
    for now in (0, 1, 62):
        at.now = now
        await at.tokens.refuse(None)
    assert at.pauses == [0.1, 0.2, 0.1]


async def test_memory_is_bounded_for_many_addresses() -> None:
    at = Bench()
    for number in range(5_000):
        await at.tokens.refuse(str(number))
    assert len(at.tokens._seen) == 4_096
    await at.tokens.refuse("4999")
    assert at.pauses[-1] == 0.2
