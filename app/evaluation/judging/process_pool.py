"""Runs judges in separate processes, one per core, so that they don't share an interpreter lock."""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from typing import Final

from app.evaluation.cases.case import Case
from app.evaluation.judging.case_judge import CaseJudge, CaseVerdicts
from app.evaluation.judging.judge_worker import Worker
from app.settings import Settings
from judges.label_thresholds import Thresholds

_CASES_PER_PROCESS: Final = 4
"""The number of cases per process. It is high enough that each process always has another case while results are
written and more cases are read."""
_TRIES: Final = 2


class Processes:
    """Runs ``count`` processes, each of which builds its own copy of ``judge`` from ``settings``. The processes start
    when the first case arrives, and ``judge`` must be loaded by then. Close the pool at the end."""

    def __init__(self, settings: Settings, judge: CaseJudge, count: int) -> None:
        self._settings = settings
        self._judge = judge
        self._count = count
        self._pool: ProcessPoolExecutor | None = None
        self._asked = 0
        self._closed = False
        self.at_once = _CASES_PER_PROCESS * count
        """The number of cases to judge concurrently."""

    async def judge(self, case: Case) -> CaseVerdicts:
        """Judge ``case``. If a process dies, for example because it runs out of memory, it is replaced and the case is
        retried once. After a second failure, ``fault`` says why. Errors are never raised."""
        self._asked += 1
        ruling = await self._ruling(case)
        self._asked -= 1  # A cancelled case still counts, because a process may be judging it.
        return ruling

    async def _ruling(self, case: Case) -> CaseVerdicts:
        for _ in range(_TRIES):
            if self._closed:
                break
            pool = self._pool = self._pool or self._open()
            try:
                with _no_interrupt_for_children():  # The first case starts the processes.
                    ruling = pool.submit(_rule, case)
                waited = asyncio.wrap_future(ruling)
                waited.add_done_callback(_retrieve_exception)
                found = await asyncio.shield(waited)  # If a process dies, the pool can't handle cancelled futures.
            except BrokenProcessPool:
                if self._pool is pool:
                    self._pool = None
            else:
                return self._judge.nothing(found) if isinstance(found, str) else found
        return self._judge.nothing("the judging process exited unexpectedly")

    async def aclose(self) -> None:
        """End the processes. Processes that are still judging cancelled cases are terminated immediately."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            if self._asked:
                for process in list(pool._processes.values()):
                    process.terminate()
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)

    def _open(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self._count,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(self._settings, self._judge.kind.value, self._judge.thresholds, self._judge.name),
        )


def _retrieve_exception(done: asyncio.Future[CaseVerdicts | str]) -> None:
    """Prevent asyncio from logging the exception of a future that is never awaited."""
    if not done.cancelled():
        done.exception()


@contextmanager
def _no_interrupt_for_children() -> Iterator[None]:
    """Make processes that are started in this block ignore Ctrl-C, even while they import modules. The parent process
    handles Ctrl-C and ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_make: Callable[[], Worker]
"""The function that loads the judge. It is set only in judging processes."""
_workers: list[Worker] = []
"""The loaded judge. It is set only in judging processes."""


def _start(settings: Settings, kind: str, thresholds: Thresholds, name: str) -> None:
    global _make
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Needed where the parent couldn't block the signal in advance.
    threading.Thread(target=_end_with_the_run, daemon=True).start()
    _make = partial(Worker, settings, kind, thresholds, name)


def _end_with_the_run() -> None:
    if (run := multiprocessing.parent_process()) is not None:
        run.join()
        os._exit(1)


def _rule(case: Case) -> CaseVerdicts | str:
    """Return the verdicts. If the judge can't be loaded, return the reason. The next call then tries again."""
    if not _workers:
        try:
            _workers.append(_make())
        except Exception as error:
            return f"the judging process could not start: {error or type(error).__name__}"
    (ruling,) = _workers[0].judge([case])
    return ruling
