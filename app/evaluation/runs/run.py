"""A run: cases in, a folder of results out. Killed and started again, it goes on where it was."""

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
from app.evaluation.runs.html_report import write_report
from app.evaluation.runs.run_folder import RunFolder
from app.evaluation.runs.run_summary import Line, Summary, summarize

GIVE_UP: Final = 20
"""So many failures in a row end a run: the judge is gone, and the cases left would only fail too."""

_SWITCH_S: Final = 0.001
_READ: Final = 16
"""Cases read from the input at a time."""

Progress = Callable[[Line], None]


class RunStoppedError(Exception):
    """The judge failed again and again. What was judged is kept, and the run can go on later."""


class EngineMissingError(Exception):
    """What the run is to be done with is not installed; the message says how it is."""


class Recorder:
    """Takes the results of a run as they come, in any order: files, progress, figures."""

    def __init__(self, folder: RunFolder, progress: Progress) -> None:
        self.folder = folder
        self._progress = progress
        self._lines: list[Line] = []
        self._failures = 0

    async def finished(self, case: Case, key: str) -> CaseResult | None:
        """What an earlier run into the same folder left of ``case``."""
        return await asyncio.to_thread(self.folder.load, case, key) if key and self.folder.has(case) else None

    async def take(self, place: int, result: CaseResult, *, written: bool = False) -> None:
        """Keep a result; ``written``: its file is there already. Raises RunStoppedError or RunFolderError."""
        if not written:
            await asyncio.to_thread(self.folder.save, result)
        line = Line.of(place, result)
        self._lines.append(line)
        self._progress(line)
        self._failures = self._failures + 1 if result.error is not None else 0
        if self._failures >= GIVE_UP:
            raise RunStoppedError(f"{GIVE_UP} cases in a row failed, the last one so: {result.error}")

    async def close(self, evaluator: Evaluator) -> Summary:
        """Write summary and report. Raises RunFolderError."""
        summary = summarize(self._lines, evaluator.judge)
        await asyncio.to_thread(self._close, summary)
        return summary

    def _close(self, summary: Summary) -> None:
        self.folder.keep_only({line.case_id for line in self._lines})
        self.folder.write_summary(asdict(summary))
        self.folder.write_report(write_report(summary, self._lines, self.folder.result))


async def run_cases(evaluator: Evaluator, cases: Iterable[Case], folder: RunFolder, progress: Progress) -> Summary:
    """Judge ``cases`` by ``evaluator``, which must be open, and write all that comes of it to ``folder``.

    A case that an earlier run into the folder has finished is left as it is. ``progress`` is told of each case. Raises
    RunStoppedError, RunFolderError, CacheError, and what ``cases`` raises.
    """
    with brisk():
        return await _run(evaluator, cases, folder, progress)


@contextmanager
def brisk() -> Iterator[None]:
    """Let a thread that comes back from the model wait for Python no longer than a fraction of what the model takes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


async def _run(evaluator: Evaluator, cases: Iterable[Case], folder: RunFolder, progress: Progress) -> Summary:
    await asyncio.to_thread(folder.open)
    recorder = Recorder(folder, progress)
    waiting = _Waiting(cases)

    async def work() -> None:
        while (taken := await waiting.next()) is not None:
            await _one(evaluator, *taken, recorder)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(evaluator.at_once):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    return await recorder.close(evaluator)


class _Waiting:
    """The cases to come, each with its number, read some at a time off the event loop."""

    def __init__(self, cases: Iterable[Case]) -> None:
        self._cases = enumerate(cases)
        self._read: deque[tuple[int, Case]] = deque()
        self._reading = asyncio.Lock()

    async def next(self) -> tuple[int, Case] | None:
        """None at the end. Raises what the cases raise."""
        async with self._reading:
            if not self._read:
                self._read.extend(await asyncio.to_thread(list, islice(self._cases, _READ)))
            return self._read.popleft() if self._read else None


async def _one(evaluator: Evaluator, place: int, case: Case, recorder: Recorder) -> None:
    finished = await recorder.finished(case, evaluator.key(case))
    if finished is not None:
        await recorder.take(place, finished, written=True)
    else:
        await recorder.take(place, await evaluator.evaluate(case))


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    found = errors.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
