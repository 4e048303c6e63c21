"""Streamed responses with heartbeats and a timeout for clients that stop reading."""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

import anyio
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.client_disconnect import ClientGoneError, DisconnectWatcher
from app.upstream import Headers

_log = structlog.stdlib.get_logger(__name__)

_ALIVE = b": waiting\n"
"""The heartbeat, a comment line. It has no blank line after it, because that would end an event."""

_CHECKS = 8
"""How many times per ``send_timeout_s`` to check whether the client is still reading."""


class StreamedResponse(Response):
    """Sends ``content`` as it arrives. Always calls ``aclose`` at the end.

    The stream ends early if the client disconnects or reads nothing for ``send_timeout_s``. After each pause of
    ``heartbeat_s``, a comment is sent. If ``heartbeat_s`` is None, no comments are sent. The stream runs inside the
    context manager that ``within`` returns.
    """

    def __init__(
        self,
        content: AsyncIterable[bytes],
        headers: Headers,
        *,
        status: int,
        aclose: Callable[[], Awaitable[None]],
        send_timeout_s: float,
        heartbeat_s: float | None = None,
        within: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.status_code, self.background = status, None
        self.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self._content, self._aclose, self._within = content, aclose, within
        self._send_timeout_s, self._heartbeat_s = send_timeout_s, heartbeat_s
        self._send: Send
        self._loop = asyncio.get_running_loop()
        self._sending = False
        self._since = self._loop.time()
        """The time of the last send."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send = send
        try:
            with self._within():
                async with DisconnectWatcher(receive) as watcher:
                    await self._run(watcher)
        except ClientGoneError:
            pass
        except TimeoutError:
            _log.warning("client_dropped", reason="the client stopped reading")
        finally:
            with anyio.CancelScope(shield=True):
                await self._aclose()

    async def _run(self, watcher: DisconnectWatcher) -> None:
        self._check_later(watcher)
        heartbeat = None if self._heartbeat_s is None else self._loop.create_task(self._heartbeat(self._heartbeat_s))
        try:
            await self._send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for data in self._content:
                await self._put(data)
            if heartbeat is not None:
                heartbeat.cancel()  # nothing may follow the end of the stream
            await self._put(b"", more=False)
        finally:
            self._next_check.cancel()
            if heartbeat is not None:
                heartbeat.cancel()

    async def _put(self, data: bytes, *, more: bool = True) -> None:
        self._since, self._sending = self._loop.time(), True
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
        self._sending = False

    def _check_later(self, watcher: DisconnectWatcher) -> None:
        self._next_check = self._loop.call_later(self._send_timeout_s / _CHECKS, self._check, watcher)

    def _check(self, watcher: DisconnectWatcher) -> None:
        """Drop a client that has stopped reading."""
        if self._sending and self._loop.time() - self._since >= self._send_timeout_s:
            watcher.cancel(TimeoutError())
        else:
            self._check_later(watcher)

    async def _heartbeat(self, every_s: float) -> None:
        while True:
            due_s = self._since + every_s - self._loop.time()
            if due_s > 0:
                await asyncio.sleep(due_s)
            elif self._sending:
                await asyncio.sleep(every_s)
            else:
                await self._put(_ALIVE)
