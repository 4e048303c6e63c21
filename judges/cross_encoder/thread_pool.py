"""The threads that a model runs on."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from itertools import count
from queue import Empty, PriorityQueue
from threading import Lock, Thread
from typing import Any

log = logging.getLogger(__name__)

_CLOSE_S = 5.0

_PATIENCE = 64
"""So many of the jobs that come after one that can wait are done before it."""

_Job = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class JudgeThreads(Executor):
    """Up to ``workers`` threads, made as they are needed.

    What sets them apart from the standard library's: one that is stuck in a model does not keep the process from
    ending.
    """

    def __init__(self, workers: int, *, name: str = "judge") -> None:
        self._workers, self._name = workers, name
        self._jobs: PriorityQueue[tuple[int, int, _Job | None]] = PriorityQueue()
        """Each with its turn; of two with the same turn, the one that came first is done first."""
        self._numbers = count()
        self._ends: list[Future[None]] = []
        """One for each thread, done when that is over."""
        self._free = 0
        self._closed = False
        self._lock = Lock()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Have ``function`` called by a thread. Raises RuntimeError once they are closed."""
        return self._put((Future(), function, arguments, named), 0)

    @property
    def patient(self) -> Executor:
        """The same threads for what can wait a while: what is submitted to them otherwise is mostly done first."""
        return _Patient(self._put)

    def _put(self, job: _Job, patience: int) -> Future[Any]:
        with self._lock:
            if self._closed:
                raise RuntimeError("the threads of the judge have ended")
            number = next(self._numbers)
            self._jobs.put((number + patience, number, job))
            if self._free > 0:
                self._free -= 1
            elif len(self._ends) < self._workers:
                end: Future[None] = Future()
                self._ends.append(end)
                Thread(target=self._work, args=(end,), name=f"{self._name}-{len(self._ends)}", daemon=True).start()
        return job[0]

    async def aclose(self, limit_s: float | None = None) -> None:
        """End the threads: what waits is cancelled, what runs is waited for, though no longer than ``limit_s``, some
        seconds by default."""
        with self._lock:
            self._closed = True
            self._cancel_waiting()
            for _ in self._ends:
                self._jobs.put((0, next(self._numbers), None))
        ends = [asyncio.wrap_future(end) for end in self._ends]
        limit_s = _CLOSE_S if limit_s is None else limit_s
        stuck = (await asyncio.wait(ends, timeout=limit_s))[1] if ends else ()
        if stuck:
            log.warning("%d of %d threads of the judge do not end and are left behind", len(stuck), len(ends))

    def _cancel_waiting(self) -> None:
        while True:
            try:
                _, _, job = self._jobs.get_nowait()
            except Empty:
                return
            if job is not None:
                job[0].cancel()

    def _work(self, end: Future[None]) -> None:
        while (job := self._jobs.get()[2]) is not None:
            _do(*job)
            del job  # and with it the texts, while nothing is to be done
            with self._lock:
                self._free += 1
        end.set_result(None)


class _Patient(Executor):
    def __init__(self, put: Callable[[_Job, int], Future[Any]]) -> None:
        self._put = put

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        return self._put((Future(), function, arguments, named), _PATIENCE)


def _do(future: Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function(*arguments, **named)
    except BaseException as error:  # whoever waits is told, whatever it is
        future.set_exception(error)
    else:
        future.set_result(result)
