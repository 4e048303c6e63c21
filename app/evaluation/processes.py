"""Judges in processes of their own, one a core: they share no interpreter lock, so each has its core to itself."""

import asyncio
import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Final

from app.evaluation.cases import Case
from app.evaluation.judging import CaseJudge, Ruling
from app.evaluation.results import Judged
from app.evaluation.worker import Worker
from app.settings import Settings
from judges.types import Thresholds

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
        self.at_once = _CASES_A_PROCESS * count
        """How many cases to judge side by side."""

    async def judge(self, case: Case) -> Ruling:
        """The verdicts on ``case``. A process that ends, killed for its memory, say, is replaced and the case tried
        once more; what goes wrong then is the ruling's fault, never raised."""
        for _ in range(_TRIES):
            pool = self._pool = self._pool or self._open()
            try:
                return await asyncio.wrap_future(pool.submit(_rule, case))
            except BrokenProcessPool:
                if self._pool is pool:
                    self._pool = None
        nothing = Judged(judge=self._judge.name, summary="Not checked", support=self._judge.thresholds.entailment)
        return Ruling(nothing, "the process that judged it ended before it was done")

    async def aclose(self) -> None:
        """End the processes, after the cases that they are at."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)

    def _open(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self._count,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(self._settings, self._judge.kind.value, self._judge.thresholds, self._judge.name),
        )


_workers: list[Worker] = []
"""Of a process that judges: the one that it has."""


def _start(settings: Settings, kind: str, thresholds: Thresholds, name: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run, which gets it too, ends this process
    threading.Thread(target=_end_with_the_run, daemon=True).start()
    _workers.append(Worker(settings, kind, thresholds, name))


def _end_with_the_run() -> None:
    if (run := multiprocessing.parent_process()) is not None:
        run.join()
        os._exit(1)


def _rule(case: Case) -> Ruling:
    (ruling,) = _workers[0].rule([case])
    return ruling
