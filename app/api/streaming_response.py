"""A streamed reply on its way to the client."""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

import anyio
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.client_disconnect import ClientGoneError, Presence
from app.upstream import Headers

_log = structlog.stdlib.get_logger(__name__)

_ALIVE = b": waiting\n"
"""A comment line without a blank line, since that would end an event which is not there."""

_LOOKS = 8
"""How often in ``send_timeout_s`` a client is looked at that takes nothing."""


class Stream(Response):
    """Sends ``content`` as it comes; ``aclose`` is called whatever the end.

    It ends early when the client goes away or takes no byte for ``send_timeout_s``. ``pulse_s``: after so long a pause
    a comment goes out, over and over; None: nothing of ours is put in between. ``within`` is held while it runs.
    """

    def __init__(
        self,
        content: AsyncIterable[bytes],
        headers: Headers,
        *,
        status: int,
        aclose: Callable[[], Awaitable[None]],
        send_timeout_s: float,
        pulse_s: float | None = None,
        within: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.status_code, self.background = status, None
        self.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self._content, self._aclose, self._within = content, aclose, within
        self._send_timeout_s, self._pulse_s = send_timeout_s, pulse_s
        self._send: Send
        self._loop = asyncio.get_running_loop()
        self._sending = False
        self._since = self._loop.time()
        """When the last byte was sent, or began to be."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send = send
        try:
            with self._within():
                async with Presence(receive) as presence:
                    await self._run(presence)
        except ClientGoneError:
            pass
        except TimeoutError:
            _log.warning("client_dropped", reason="it took no byte for too long")
        finally:
            with anyio.CancelScope(shield=True):
                await self._aclose()

    async def _run(self, presence: Presence) -> None:
        self._look_later(presence)
        pulse = None if self._pulse_s is None else self._loop.create_task(self._pulse(self._pulse_s))
        try:
            await self._send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for data in self._content:
                await self._put(data)
            if pulse is not None:
                pulse.cancel()  # nothing may come behind the end
            await self._put(b"", more=False)
        finally:
            self._looking.cancel()
            if pulse is not None:
                pulse.cancel()

    async def _put(self, data: bytes, *, more: bool = True) -> None:
        self._since, self._sending = self._loop.time(), True
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
        self._sending = False

    def _look_later(self, presence: Presence) -> None:
        self._looking = self._loop.call_later(self._send_timeout_s / _LOOKS, self._look, presence)

    def _look(self, presence: Presence) -> None:
        """Give up on a client that takes nothing."""
        if self._sending and self._loop.time() - self._since >= self._send_timeout_s:
            presence.cut(TimeoutError())
        else:
            self._look_later(presence)

    async def _pulse(self, every_s: float) -> None:
        while True:
            due_s = self._since + every_s - self._loop.time()
            if due_s > 0:
                await asyncio.sleep(due_s)
            elif self._sending:
                await asyncio.sleep(every_s)
            else:
                await self._put(_ALIVE)
