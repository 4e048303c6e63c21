"""A single-core judge, for engines that use many judging processes."""

import asyncio
from collections.abc import Sequence

from app.evaluation.cases.case import Case
from app.evaluation.judging.case_judge import CaseVerdicts, JudgeKind, open_judge
from app.settings import Settings
from judges.label_thresholds import Thresholds


class Worker:
    """Loads the judge described by ``settings`` once, with one thread and a private event loop, and then judges cases.

    Raises RuntimeError if the judge's name differs from ``name``, and any error from loading it.
    """

    def __init__(self, settings: Settings, kind: str, thresholds: Thresholds, name: str) -> None:
        alone = settings.model_copy(update={"judge_threads": 1})
        self._judge = open_judge(alone, JudgeKind(kind), thresholds=thresholds)
        self._runner = asyncio.Runner()
        try:
            self._runner.run(self._judge.start())
            if self._judge.name != name:
                raise RuntimeError(
                    f"this process has the judge {self._judge.name}, not {name}: install the same version everywhere"
                )
        except BaseException:
            self._runner.close()
            raise

    def judge(self, cases: Sequence[Case]) -> Sequence[CaseVerdicts]:
        """Judge ``cases`` and return the verdicts in the same order."""
        return self._runner.run(self._all(cases))

    async def _all(self, cases: Sequence[Case]) -> Sequence[CaseVerdicts]:
        turns = asyncio.Semaphore(self._judge.at_once)

        async def one(case: Case) -> CaseVerdicts:
            async with turns:
                return await self._judge.judge(case)

        return await asyncio.gather(*(one(case) for case in cases))
