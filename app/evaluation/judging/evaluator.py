"""Evaluates cases: verdicts come from the cache or from the judge."""

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
from judges.thresholds import Thresholds


class Evaluator:
    """Evaluates cases concurrently, and judges none twice: not if it is in the cache, nor if an equal case is being
    judged. Use it as an async context manager, which loads the judge and closes everything it was given. With
    ``processes``, these judge, and ``judge`` only computes the keys of cases."""

    def __init__(self, judge: CaseJudge, cache: VerdictCache | None = None, processes: Processes | None = None) -> None:
        self.judge = judge
        self._cache = cache
        self._processes = processes
        self.at_once = judge.at_once if processes is None else processes.at_once
        """How many cases to evaluate concurrently."""
        self._running: dict[str, asyncio.Event] = {}
        self.judged = 0
        """How many cases were judged."""

    async def __aenter__(self) -> Self:
        """Raises JudgeMissingError."""
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
        """The hash of everything that determines the verdicts on ``case``; empty if there is nothing to judge."""
        return self.judge.key(case) if case.scoring.enabled and case.documents else ""

    async def evaluate(self, case: Case) -> CaseResult:
        """The result of ``case``; it reports a failing judge. Raises CacheError."""
        key = self.key(case)
        if self._cache is None or not key:
            return await self.known(case, key) or await self._judge(case, key)
        async with self._alone(key):
            return await self.known(case, key) or await self._judge(case, key)

    async def known(self, case: Case, key: str) -> CaseResult | None:
        """The result of a case that is skipped or in the cache; None for others. Raises CacheError."""
        if not key:
            return CaseResult(case=case, skipped="no_context" if case.scoring.enabled else "disabled")
        judged = None if self._cache is None else await asyncio.to_thread(self._cache.get, key)
        return None if judged is None else _result(case, key, judged, cached=True)

    async def settle(self, case: Case, key: str, verdicts: CaseVerdicts) -> CaseResult:
        """The result of a case that was judged; cached if its verdicts are complete. Raises CacheError."""
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
    """An evaluator with the judge that ``settings`` describe (default: the environment's). ``cache``: a file to keep
    verdicts in; None for none. ``processes``: the number of processes that judge, each with a model of its own in
    memory; 0: this process. Nothing is loaded yet. Raises SettingsError or CacheError, ValueError for an unknown
    ``judge``."""
    settings = settings or load_settings()
    opened = open_judge(settings, JudgeKind(judge), thresholds=thresholds)
    return Evaluator(
        opened,
        None if cache is None else VerdictCache(cache),
        Processes(settings, opened, processes) if processes else None,
    )
