"""Clients that disconnect: the work for them is cancelled."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive

T = TypeVar("T")

CLIENT_CLOSED_REQUEST = 499
"""nginx's status for a client that disconnected. Nobody reads the response."""


class ClientGoneError(Exception):
    """The client disconnected before it had its response."""


class DisconnectWatcher:
    """A block that is cancelled when the client disconnects; it then raises ClientGoneError.

    The request's body must have been read. ``cancel`` ends the block with a different error.
    """

    __slots__ = ("_before", "_error", "_receive", "_task", "_watching")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._error: Exception | None = None

    async def __aenter__(self) -> "DisconnectWatcher":
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("DisconnectWatcher must be used in a task")
        self._task, self._before = task, task.cancelling()
        self._watching = asyncio.get_running_loop().create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        watching, error = self._watching, self._error
        # What ends with an exception has the frames that this is in, and a ring of them keeps a request in memory.
        del self._watching
        self._error = None
        watching.cancel()
        # Cancelled by us and by nobody else: the same care that ``asyncio.timeout`` takes.
        ours = error is not None and self._task.uncancel() <= self._before
        if ours and kind is not None and issubclass(kind, asyncio.CancelledError) and error is not None:
            try:
                raise error from None
            finally:
                del error

    def cancel(self, error: Exception) -> None:
        """End the block with ``error``; called from outside it."""
        if self._error is None:
            self._error = error
            self._task.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.cancel(ClientGoneError())


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled if the client disconnects. The body must have been read.

    Raises ClientGoneError.
    """
    async with DisconnectWatcher(request.receive):
        return await work
