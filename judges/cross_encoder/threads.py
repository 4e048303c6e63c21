"""The threads that a model runs on."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any

log = logging.getLogger(__name__)

_CLOSE_S = 5.0

_Job = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class JudgeThreads(Executor):
    """Up to ``workers`` threads, made as they are needed.

    What sets them apart from the standard library's: one that is stuck in a model does not keep the process from
    ending.
    """

    def __init__(self, workers: int, *, name: str = "judge") -> None:
        self._workers, self._name = workers, name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._ends: list[Future[None]] = []
        """One for each thread, done when that is over."""
        self._free = 0
        self._closed = False
        self._lock = Lock()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Have ``function`` called by a thread. Raises RuntimeError once they are closed."""
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the threads of the judge have ended")
            self._jobs.put((future, function, arguments, named))
            if self._free > 0:
                self._free -= 1
            elif len(self._ends) < self._workers:
                end: Future[None] = Future()
                self._ends.append(end)
                Thread(target=self._work, args=(end,), name=f"{self._name}-{len(self._ends)}", daemon=True).start()
        return future

    async def aclose(self, limit_s: float = _CLOSE_S) -> None:
        """End the threads: what waits is cancelled, what runs is waited for, though no longer than ``limit_s``."""
        with self._lock:
            self._closed = True
            self._cancel_waiting()
            for _ in self._ends:
                self._jobs.put(None)
        ends = [asyncio.wrap_future(end) for end in self._ends]
        stuck = (await asyncio.wait(ends, timeout=limit_s))[1] if ends else ()
        if stuck:
            log.warning("%d of %d threads of the judge do not end and are left behind", len(stuck), len(ends))

    def _cancel_waiting(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job is not None:
                job[0].cancel()

    def _work(self, end: Future[None]) -> None:
        while (job := self._jobs.get()) is not None:
            _do(*job)
            del job  # and with it the texts, while nothing is to be done
            with self._lock:
                self._free += 1
        end.set_result(None)


def _do(future: Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function(*arguments, **named)
    except BaseException as error:  # whoever waits is told, whatever it is
        future.set_exception(error)
    else:
        future.set_result(result)
