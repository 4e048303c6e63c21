"""Judges in processes of their own, one a core: they share no interpreter lock, so each has its core to itself."""

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
from app.evaluation.judging.case_judge import CaseJudge, Ruling
from app.evaluation.judging.judge_worker import Worker
from app.settings import Settings
from judges.thresholds import Thresholds

_CASES_A_PROCESS: Final = 4
"""So many that each finds its next case waiting while others are read and written."""
_TRIES: Final = 2


class Processes:
    """Judges cases as ``judge``, the one of ``settings``, would: in ``count`` other processes, which start with the
    first case. ``judge`` must be loaded by then. Close it at the end."""

    def __init__(self, settings: Settings, judge: CaseJudge, count: int) -> None:
        self._settings = settings
        self._judge = judge
        self._count = count
        self._pool: ProcessPoolExecutor | None = None
        self._asked = 0
        self._closed = False
        self.at_once = _CASES_A_PROCESS * count
        """How many cases to judge side by side."""

    async def judge(self, case: Case) -> Ruling:
        """The verdicts on ``case``. A process that ends, killed for its memory, say, is replaced and the case tried
        once more; what goes wrong then is the ruling's fault, never raised."""
        self._asked += 1
        ruling = await self._ruling(case)
        self._asked -= 1  # not where it was cancelled: then a process may be at it still
        return ruling

    async def _ruling(self, case: Case) -> Ruling:
        for _ in range(_TRIES):
            if self._closed:
                break
            pool = self._pool = self._pool or self._open()
            try:
                with _no_interrupt_for_children():  # the first case starts them
                    ruling = pool.submit(_rule, case)
                waited = asyncio.wrap_future(ruling)
                waited.add_done_callback(_look_at)
                found = await asyncio.shield(waited)  # a pool whose processes end chokes on what was cancelled
            except BrokenProcessPool:
                if self._pool is pool:
                    self._pool = None
            else:
                return self._judge.nothing(found) if isinstance(found, str) else found
        return self._judge.nothing("the process that judged it ended before it was done")

    async def aclose(self) -> None:
        """End the processes: at once, where they are at cases that were given up."""
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


def _look_at(done: asyncio.Future[Ruling | str]) -> None:
    """Keep asyncio from telling of the fault of one that nobody waits for any more."""
    if not done.cancelled():
        done.exception()


@contextmanager
def _no_interrupt_for_children() -> Iterator[None]:
    """Processes that are started meanwhile get no Ctrl-C, not even while they import: the run, which gets it, ends
    them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_make: Callable[[], Worker]
"""Of a process that judges: loads the judge."""
_workers: list[Worker] = []
"""The same: the one that it has, once it is loaded."""


def _start(settings: Settings, kind: str, thresholds: Thresholds, name: str) -> None:
    global _make
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it could not be kept away from the start
    threading.Thread(target=_end_with_the_run, daemon=True).start()
    _make = partial(Worker, settings, kind, thresholds, name)


def _end_with_the_run() -> None:
    if (run := multiprocessing.parent_process()) is not None:
        run.join()
        os._exit(1)


def _rule(case: Case) -> Ruling | str:
    """The ruling, or why the judge could not be loaded: the next case tries that again."""
    if not _workers:
        try:
            _workers.append(_make())
        except Exception as error:
            return f"the process that judges it could not start: {error or type(error).__name__}"
    (ruling,) = _workers[0].rule([case])
    return ruling
