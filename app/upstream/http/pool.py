"""The connections to one server: kept while they are of use, no more than there may be, first come, first served."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import httpx

from app.upstream.http.connection import Connection, Owner

_KEPT_S = 60.0
"""How long a connection may be idle."""

Dial = Callable[[Owner], Awaitable[Connection]]


class Pool:
    """``limit`` counts connections that are being made too; ``patience`` is the longest wait for one, in seconds.

    The one used last is used first, so that those that are not needed grow old.
    """

    def __init__(self, dial: Dial, *, limit: int, patience: float, kept_s: float = _KEPT_S) -> None:
        self._dial, self._limit, self._patience, self._kept_s = dial, limit, patience, kept_s
        self._loop = asyncio.get_running_loop()
        self._slots = 0
        self._open: set[Connection] = set()
        self._idle: dict[Connection, float] = {}
        """Since when; the first is the one longest idle."""
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        """Each is given a connection, or None: the right to make one."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._gone: asyncio.Future[None] | None = None

    def idle(self) -> Connection | None:
        """One that is ready now, if there is."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.is_open:
                return connection
        return None

    async def connect(self) -> Connection:
        """One that is made, or that another request leaves.

        Raises httpx.ConnectError, httpx.ConnectTimeout or httpx.PoolTimeout.
        """
        if self._gone is not None:
            raise httpx.ConnectError("the client was closed")
        again = False
        while self._slots >= self._limit:
            left = await self._left(again)
            if left is None:
                break
            if left.is_open:
                return left
            again = True  # it broke on the way, and their turn is not over
        else:
            self._slots += 1
        return await self._made()

    async def _made(self) -> Connection:
        """A new one, in a slot that is taken."""
        try:
            connection = await self._dial(self)
        except BaseException:
            self._free()
            raise
        if connection.is_lost:
            self._free()
        else:
            self._open.add(connection)
        if self._gone is not None:
            connection.abort()
        if not connection.is_open:
            raise httpx.ConnectError("the connection was closed before anything was sent")
        return connection

    async def _left(self, first: bool) -> Connection | None:
        """Wait in line, or before it, for what another leaves."""
        waiter: asyncio.Future[Connection | None] = self._loop.create_future()
        (self._waiting.appendleft if first else self._waiting.append)(waiter)
        try:
            async with asyncio.timeout(self._patience):
                return await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._pass_on(waiter.result())
            if isinstance(error, TimeoutError):
                raise httpx.PoolTimeout("all connections are in use") from None
            raise

    def _pass_on(self, given: Connection | None) -> None:
        """What was given to one who is leaving is the next one's."""
        if given is None:
            self._free()
        elif given.is_open:
            self.release(given)

    def release(self, connection: Connection) -> None:
        if not self._give(connection):
            self._idle[connection] = self._loop.time()
            if self._sweeper is None:
                self._sweeper = self._loop.call_later(self._kept_s, self._sweep)

    def lost(self, connection: Connection) -> None:
        self._idle.pop(connection, None)
        if connection in self._open:  # one that is lost while it is made is not
            self._open.discard(connection)
            self._free()
        if self._gone is not None and not self._open and not self._gone.done():
            self._gone.set_result(None)

    def _free(self) -> None:
        if not self._give(None):
            self._slots -= 1

    def _give(self, given: Connection | None) -> bool:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(given)
                return True
        return False

    def _sweep(self) -> None:
        """End those that were idle for too long, and come back when the next may have been."""
        self._sweeper = None
        now = self._loop.time()
        for connection, since in self._idle.items():
            if since + self._kept_s > now:
                self._sweeper = self._loop.call_at(since + self._kept_s, self._sweep)
                break
            connection.abort()

    async def aclose(self) -> None:
        """End all at once; whoever waits for one is told."""
        if self._gone is not None:
            return
        self._gone = self._loop.create_future()
        if self._sweeper is not None:
            self._sweeper.cancel()
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(httpx.ConnectError("the client was closed"))
        self._idle.clear()
        for connection in self._open:
            connection.abort()
        if self._open:
            await self._gone
