"""A run evaluates cases and writes the results to a folder. A stopped run can be resumed."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from typing import Final

from app.evaluation.cases.case import Case
from app.evaluation.cases.case_result import CaseResult
from app.evaluation.judging.evaluator import Evaluator
from app.evaluation.runs.html_report import render_report
from app.evaluation.runs.run_folder import RunFolder
from app.evaluation.runs.run_summary import CaseLine, Summary, summarize

MAX_CONSECUTIVE_FAILURES: Final = 20
"""Number of consecutive failures after which a run ends, because the judge is assumed to be unavailable."""

_SWITCH_S: Final = 0.001
_READ: Final = 16
"""Number of cases to read from the input at a time."""

Progress = Callable[[CaseLine], None]


class RunStoppedError(Exception):
    """The judge failed repeatedly. The results are kept, and the run can be resumed."""


class EngineMissingError(Exception):
    """The engine for the run is not installed. The message says how to install it."""


class RunRecorder:
    """Records the results of a run, in any order. It writes the files, reports progress, and builds the summary."""

    def __init__(self, folder: RunFolder, progress: Progress) -> None:
        self.folder = folder
        self._progress = progress
        self._lines: list[CaseLine] = []
        self._failures = 0

    async def finished(self, case: Case, key: str) -> CaseResult | None:
        """Return the result of ``case`` from an earlier run in the same folder, or None."""
        return await asyncio.to_thread(self.folder.load, case, key) if key and self.folder.has(case) else None

    async def take(self, place: int, result: CaseResult, *, written: bool = False) -> None:
        """Record a result, and write its file unless it is already ``written``. Raises RunStoppedError or
        RunFolderError."""
        if not written:
            await asyncio.to_thread(self.folder.save, result)
        line = CaseLine.of(place, result)
        self._lines.append(line)
        self._progress(line)
        self._failures = self._failures + 1 if result.error is not None else 0
        if self._failures >= MAX_CONSECUTIVE_FAILURES:
            raise RunStoppedError(f"{MAX_CONSECUTIVE_FAILURES} cases in a row failed; last error: {result.error}")

    async def close(self, evaluator: Evaluator) -> Summary:
        """Write the summary and the report. Raises RunFolderError."""
        summary = summarize(self._lines, evaluator.judge)
        await asyncio.to_thread(self._close, summary)
        return summary

    def _close(self, summary: Summary) -> None:
        self.folder.keep_only({line.case_id for line in self._lines})
        self.folder.write_summary(asdict(summary))
        self.folder.write_report(render_report(summary, self._lines, self.folder.result))


async def run_cases(evaluator: Evaluator, cases: Iterable[Case], folder: RunFolder, progress: Progress) -> Summary:
    """Evaluate ``cases`` with ``evaluator``, which must be open, and write the results to ``folder``.

    A case isn't evaluated again if an earlier run in the folder finished it. ``progress`` is called for each case.
    Raises RunStoppedError, RunFolderError, CacheError, and any error from ``cases``.
    """
    with short_switch_interval():
        return await _run(evaluator, cases, folder, progress)


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Shorten the switch interval, so that a thread returning from the model doesn't wait long for the interpreter
    lock."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


async def _run(evaluator: Evaluator, cases: Iterable[Case], folder: RunFolder, progress: Progress) -> Summary:
    await asyncio.to_thread(folder.open)
    recorder = RunRecorder(folder, progress)
    pending = _PendingCases(cases)

    async def work() -> None:
        while (taken := await pending.next()) is not None:
            await _one(evaluator, *taken, recorder)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(evaluator.at_once):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    return await recorder.close(evaluator)


class _PendingCases:
    """Yields each pending case with its number. Batches of cases are read in a thread."""

    def __init__(self, cases: Iterable[Case]) -> None:
        self._cases = enumerate(cases)
        self._read: deque[tuple[int, Case]] = deque()
        self._reading = asyncio.Lock()

    async def next(self) -> tuple[int, Case] | None:
        """Return the next case with its number, or None at the end. Raises any error from ``cases``."""
        async with self._reading:
            if not self._read:
                self._read.extend(await asyncio.to_thread(list, islice(self._cases, _READ)))
            return self._read.popleft() if self._read else None


async def _one(evaluator: Evaluator, place: int, case: Case, recorder: RunRecorder) -> None:
    finished = await recorder.finished(case, evaluator.key(case))
    if finished is not None:
        await recorder.take(place, finished, written=True)
    else:
        await recorder.take(place, await evaluator.evaluate(case))


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    found = errors.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
