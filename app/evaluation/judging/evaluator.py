"""Evaluates cases with verdicts from the cache or from the judge."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from app.evaluation.cases.case import Case
from app.evaluation.cases.case_result import CaseResult, JudgedOutput
from app.evaluation.judging.case_judge import CaseJudge, CaseVerdicts, JudgeKind, open_judge
from app.evaluation.judging.process_pool import Processes
from app.evaluation.judging.verdict_cache import VerdictCache
from app.settings import Settings, load_settings
from judges.label_thresholds import Thresholds


class Evaluator:
    """Evaluates cases concurrently. A case isn't judged again if its verdicts are cached or an equal case is currently
    being judged.

    Use it as an async context manager: it loads the judge at the start and closes everything passed to it at the end.
    If ``processes`` is given, those processes do the judging, and ``judge`` only computes the cache keys.
    """

    def __init__(self, judge: CaseJudge, cache: VerdictCache | None = None, processes: Processes | None = None) -> None:
        self.judge = judge
        self._cache = cache
        self._processes = processes
        self.at_once = judge.at_once if processes is None else processes.at_once
        """The number of cases to evaluate concurrently."""
        self._running: dict[str, asyncio.Event] = {}
        self.judged = 0
        """The number of cases that were judged."""

    async def __aenter__(self) -> Self:
        """Load the judge. Raises JudgeMissingError."""
        try:
            await self.judge.start()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._processes is not None:
            await self._processes.aclose()
        await self.judge.aclose()
        if self._cache is not None:
            await asyncio.to_thread(self._cache.close)

    def key(self, case: Case) -> str:
        """Return the hash of everything that determines the verdicts on ``case``, or "" if there is nothing to
        judge."""
        return self.judge.key(case) if case.scoring.enabled and case.documents else ""

    async def evaluate(self, case: Case) -> CaseResult:
        """Evaluate ``case``. If the judge fails, ``error`` in the result says why. Raises CacheError."""
        key = self.key(case)
        if self._cache is None or not key:
            return await self.known(case, key) or await self._judge(case, key)
        async with self._alone(key):
            return await self.known(case, key) or await self._judge(case, key)

    async def known(self, case: Case, key: str) -> CaseResult | None:
        """Return the result of a case that is skipped or cached, or None. Raises CacheError."""
        if not key:
            return CaseResult(case=case, skipped="no_context" if case.scoring.enabled else "disabled")
        judged = None if self._cache is None else await asyncio.to_thread(self._cache.get, key)
        return None if judged is None else _result(case, key, judged, cached=True)

    async def settle(self, case: Case, key: str, verdicts: CaseVerdicts) -> CaseResult:
        """Build the result of a case that was judged, and cache it if its verdicts are complete. Raises CacheError."""
        self.judged += 1
        if verdicts.fault is not None:
            return CaseResult(case=case, key=key, judged=verdicts.judged, error=verdicts.fault)
        if self._cache is not None:
            await asyncio.to_thread(self._cache.put, key, verdicts.judged)
        return _result(case, key, verdicts.judged)

    async def _judge(self, case: Case, key: str) -> CaseResult:
        return await self.settle(case, key, await (self._processes or self.judge).judge(case))

    @asynccontextmanager
    async def _alone(self, key: str) -> AsyncIterator[None]:
        while (other := self._running.get(key)) is not None:
            await other.wait()
        done = self._running[key] = asyncio.Event()
        try:
            yield
        finally:
            del self._running[key]
            done.set()


def _result(case: Case, key: str, judged: JudgedOutput, *, cached: bool = False) -> CaseResult:
    skipped = None if judged.claims else "no_claims"
    return CaseResult(case=case, key=key, judged=judged, cached=cached, skipped=skipped)


def open_evaluator(
    settings: Settings | None = None,
    *,
    judge: JudgeKind | str = JudgeKind.CROSS_ENCODER,
    thresholds: Thresholds | None = None,
    cache: Path | None = None,
    processes: int = 0,
) -> Evaluator:
    """Build an evaluator with the judge that ``settings`` describe, without loading it. By default, the settings come
    from the environment.

    ``cache`` is a file for verdicts; None disables caching. ``processes`` is the number of judging processes, each of
    which loads its own model. With 0, this process does the judging. Raises SettingsError, CacheError, or ValueError
    for an unknown ``judge``.
    """
    settings = settings or load_settings()
    opened = open_judge(settings, JudgeKind(judge), thresholds=thresholds)
    return Evaluator(
        opened,
        None if cache is None else VerdictCache(cache),
        Processes(settings, opened, processes) if processes else None,
    )
