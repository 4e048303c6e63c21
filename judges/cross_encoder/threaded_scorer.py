"""The threads that run a model, and the base class for scorers whose model runs on a dedicated thread."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from itertools import count
from queue import Empty, PriorityQueue
from threading import Lock, Thread
from typing import Any

from judges.protocols import JudgeUnavailableError
from judges.types import Probabilities

log = logging.getLogger(__name__)

_CLOSE_S = 5.0

_LOW_PRIORITY_DELAY = 64
"""Number of later jobs that may run before a low-priority job."""

_Job = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class JudgeThreadPool(Executor):
    """A pool of up to ``workers`` threads, started as needed.

    Unlike with the standard library's pool, a thread that is stuck in a model doesn't keep the process from exiting.
    """

    def __init__(self, workers: int, *, name: str = "judge") -> None:
        self._workers, self._name = workers, name
        self._jobs: PriorityQueue[tuple[int, int, _Job | None]] = PriorityQueue()
        """Jobs ordered by (turn, sequence number), so that jobs with the same turn run in the order of submission."""
        self._numbers = count()
        self._ends: list[Future[None]] = []
        """One future per thread, done when the thread ends."""
        self._free = 0
        self._closed = False
        self._lock = Lock()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Call ``function`` on a thread. Raises RuntimeError if the pool is closed."""
        return self._put((Future(), function, arguments, named), 0)

    @property
    def low_priority(self) -> Executor:
        """Return an executor that runs low-priority jobs on the same threads. Most other jobs run before them."""
        return _LowPriority(self._put)

    def _put(self, job: _Job, delay: int) -> Future[Any]:
        with self._lock:
            if self._closed:
                raise RuntimeError("the judge's thread pool is closed")
            number = next(self._numbers)
            self._jobs.put((number + delay, number, job))
            if self._free > 0:
                self._free -= 1
            elif len(self._ends) < self._workers:
                end: Future[None] = Future()
                self._ends.append(end)
                Thread(target=self._work, args=(end,), name=f"{self._name}-{len(self._ends)}", daemon=True).start()
        return job[0]

    async def aclose(self, limit_s: float | None = None) -> None:
        """Close the pool: cancel waiting jobs, and wait up to ``limit_s`` seconds (default 5) for running ones."""
        with self._lock:
            self._closed = True
            self._cancel_waiting()
            for _ in self._ends:
                self._jobs.put((0, next(self._numbers), None))
        ends = [asyncio.wrap_future(end) for end in self._ends]
        limit_s = _CLOSE_S if limit_s is None else limit_s
        stuck = (await asyncio.wait(ends, timeout=limit_s))[1] if ends else ()
        if stuck:
            log.warning("%d of %d judge threads are stuck and were abandoned", len(stuck), len(ends))

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
            del job  # Frees the job's texts while the thread is idle.
            with self._lock:
                self._free += 1
        end.set_result(None)


class _LowPriority(Executor):
    def __init__(self, put: Callable[[_Job, int], Future[Any]]) -> None:
        self._put = put

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        return self._put((Future(), function, arguments, named), _LOW_PRIORITY_DELAY)


def _do(future: Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function(*arguments, **named)
    except BaseException as error:  # Raised in the caller that awaits the future.
        future.set_exception(error)
    else:
        future.set_result(result)


class ThreadedScorer(ABC):
    """Loads a model once and runs it on one thread. Subclasses implement loading and prediction."""

    def __init__(self, thread_name: str) -> None:
        self._ready = False
        self._loading = asyncio.Lock()
        self._threads = JudgeThreadPool(1, name=thread_name)

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in reports and cache keys."""

    async def start(self) -> None:
        """Load the model. Idempotent. Raises JudgeUnavailableError."""
        async with self._loading:
            if not self._ready:
                await self._in_worker(self._load)
                self._ready = True

    async def aclose(self) -> None:
        """Wait a few seconds for the running prediction, then release the model. The scorer cannot be restarted."""
        await self._threads.aclose()
        self._ready = False
        self._unload()

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        """Score (evidence, claim) pairs, in order. Raises JudgeError."""
        self._require_ready()
        result: list[Probabilities] = await self._in_worker(self._predict, pairs) if pairs else []
        return result

    def _require_ready(self) -> None:
        if not self._ready:
            raise JudgeUnavailableError(f"{self.name} is not loaded")

    async def _in_worker(self, function: Any, *arguments: Any) -> Any:
        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
        except RuntimeError as error:
            raise JudgeUnavailableError(f"{self.name} is closed") from error
        return await future

    @abstractmethod
    def _load(self) -> None:
        """Load the model; called on the thread. Raises JudgeUnavailableError."""

    @abstractmethod
    def _unload(self) -> None:
        """Release the model."""

    @abstractmethod
    def _predict(self, pairs: Sequence[tuple[str, str]]) -> list[Probabilities]:
        """Score ``pairs``; called on the thread. Raises JudgeError."""
