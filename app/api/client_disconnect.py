"""Work that is done only while somebody waits for it."""

import asyncio
from types import TracebackType

from starlette.types import Receive


class ClientGoneError(Exception):
    """The client left before all was said."""


class Presence:
    """A block that ends when the client goes away: what it awaits is cancelled, and ClientGoneError leaves it.

    The request's body must have been read. ``cut`` ends it the same way with another error.
    """

    __slots__ = ("_before", "_error", "_receive", "_task", "_watching")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._error: Exception | None = None

    async def __aenter__(self) -> "Presence":
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a presence needs a task to end")
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

    def cut(self, error: Exception) -> None:
        """End the block with ``error``, from outside of it."""
        if self._error is None:
            self._error = error
            self._task.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.cut(ClientGoneError())
