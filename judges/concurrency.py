"""Keeps long-running work off the event loop, and tracks tasks."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import Timer
from time import monotonic
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MAX_INLINE_SPLIT_CHARS: Final = 500
"""Pieces of a reply with at most this many characters are split into sentences on the event loop, longer ones on a
thread. If every line is a label, this many characters take some 20 milliseconds."""

MAX_INLINE_DOCUMENT_CHARS: Final = 5_000
"""Documents with at most this many characters in total are evaluated on the event loop, longer ones on a thread."""

MAX_INLINE_REPLY_CHARS: Final = 10_000
"""Replies with at most this many characters are summarised in a report on the event loop, longer ones on a thread."""

MAX_INLINE_SENTENCES: Final = 100
"""Replies with more sentences than this are processed on a thread, however short the sentences are."""

MAX_INLINE_CHARS: Final = 600
"""Sentences and claims with at most this many characters are parsed on the event loop, longer ones on a thread."""

MAX_INLINE_COMPARISONS: Final = 400
"""Up to this many pairs of quantities (one from the claim, one from its evidence) are compared on the event loop, which
takes well under a millisecond. Larger numbers of pairs are compared on a thread."""

_TURN_S: Final = 0.002
"""Number of seconds for which a loop runs before it lets other tasks run."""


_THREADS: Final = ThreadPoolExecutor(2, thread_name_prefix="groundlane-work")
"""There are only two threads, because only one of them can run at a time, and each additional thread that waits for the
interpreter lock makes the event loop wait longer for it."""


async def run(inline: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``function`` on the event loop if ``inline``, otherwise on a thread. ``function`` must not wait for
    anything. Pass ``inline=True`` for work that takes hardly longer than waking a thread."""
    if inline:
        return function(*args, **kwargs)
    call = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, call)


class Turns:
    """Lets other tasks run from time to time during a loop that might otherwise never yield."""

    def __init__(self) -> None:
        self._ends = monotonic() + _TURN_S

    async def take(self) -> None:
        """Call this before each step of the loop."""
        if monotonic() >= self._ends:
            await asyncio.sleep(0)
            self._ends = monotonic() + _TURN_S


_FREED_AT_ONCE: Final = 200
_FREED_AFTER_S: Final = 0.5
"""The delay before the items are freed, by which time all other owners have released them."""


class FreedInSteps(list[T]):
    """A list whose items are freed a few at a time. Even on a thread, freeing all the data about a long reply at once
    would hold the interpreter lock and so block the event loop."""

    def __del__(self) -> None:
        if len(self) > _FREED_AT_ONCE:
            freeing = Timer(_FREED_AFTER_S, _free, (self[:],))
            freeing.daemon = True
            self.clear()
            with suppress(RuntimeError):  # The interpreter is exiting.
                freeing.start()


def _free(items: list[Any]) -> None:
    while items:
        del items[-_FREED_AT_ONCE:]


class TaskScope:
    """Starts tasks and stops them: after ``aclose``, none is running."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        """The number of running tasks."""
        return len(self._tasks)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def join(self) -> None:
        """Wait for the running tasks. Their exceptions are ignored."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def aclose(self) -> None:
        """Cancel the running tasks and wait for them. Their exceptions are ignored."""
        if not self._tasks:
            return
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
