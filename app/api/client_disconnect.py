"""Cancels work when the client disconnects."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive

T = TypeVar("T")

CLIENT_CLOSED_REQUEST = 499
"""The status that nginx uses for a client that disconnected. The client never sees the response."""


class ClientGoneError(Exception):
    """The client disconnected before receiving the whole response."""


class DisconnectWatcher:
    """A context manager that cancels its block when the client disconnects, and then raises ClientGoneError.

    Read the request body before entering the block. ``cancel(error)`` ends the block and raises ``error``
    instead.
    """

    __slots__ = ("_before", "_error", "_receive", "_task", "_watching")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._error: Exception | None = None

    async def __aenter__(self) -> "DisconnectWatcher":
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("DisconnectWatcher must be used inside a task")
        self._task, self._before = task, task.cancelling()
        self._watching = asyncio.get_running_loop().create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        watching, error = self._watching, self._error
        # An exception's traceback refers to this frame. Drop the references, because a cycle would keep the request in
        # memory.
        del self._watching
        self._error = None
        watching.cancel()
        # As in ``asyncio.timeout``, check that only this class cancelled the task.
        ours = error is not None and self._task.uncancel() <= self._before
        if ours and kind is not None and issubclass(kind, asyncio.CancelledError) and error is not None:
            try:
                raise error from None
            finally:
                del error

    def cancel(self, error: Exception) -> None:
        """End the block with ``error``. Call this from outside the block."""
        if self._error is None:
            self._error = error
            self._task.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.cancel(ClientGoneError())


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``, or cancel it if the client disconnects. Read the request body before calling this.

    Raises ClientGoneError.
    """
    async with DisconnectWatcher(request.receive):
        return await work
