"""Logs and counts wrong admin tokens, and delays the response longer with each wrong token from the same address."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

_log = structlog.stdlib.get_logger(__name__)

_FORGET_S = 60.0
"""The count of an address is reset after this time without wrong tokens."""
_FIRST_S, _LONGEST_S = 0.05, 2.0
_MOST_ADDRESSES = 4_096


class WrongTokens:
    """``observe`` is called for each wrong token. Requests with a correct token are never delayed."""

    def __init__(
        self,
        observe: Callable[[], None],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observe, self._sleep, self._clock = observe, sleep, clock
        self._seen: dict[str | None, tuple[int, float]] = {}

    async def refuse(self, address: str | None) -> None:
        """Record a wrong token from ``address``, and wait until the response can be sent."""
        await self._sleep(min(_LONGEST_S, _FIRST_S * 2.0 ** min(self.note(address), 10)))

    def note(self, address: str | None) -> int:
        """Count and log a wrong token from ``address``. Return the number of recent ones."""
        now = self._clock()
        count, last = self._seen.pop(address, (0, now))
        count = 1 if now - last > _FORGET_S else count + 1
        if len(self._seen) >= _MOST_ADDRESSES:
            del self._seen[next(iter(self._seen))]
        self._seen[address] = count, now
        self._observe()
        _log.warning("admin_token_wrong", client=address, attempts=count)
        return count
