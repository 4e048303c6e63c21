"""A judge that has a core to itself, in whatever process it is put: what the engines with many processes run."""

import asyncio
from collections.abc import Sequence

from app.evaluation.cases.case import Case
from app.evaluation.judging.case_judge import JudgeKind, Ruling, open_judge
from app.settings import Settings
from judges.thresholds import Thresholds


class Worker:
    """Loads the judge of ``settings`` once, with one thread, on an event loop of its own, then takes cases.

    Raises RuntimeError where its judge is not the one called ``name``, and what loading it raises.
    """

    def __init__(self, settings: Settings, kind: str, thresholds: Thresholds, name: str) -> None:
        alone = settings.model_copy(update={"judge_threads": 1})
        self._judge = open_judge(alone, JudgeKind(kind), thresholds=thresholds)
        self._runner = asyncio.Runner()
        try:
            self._runner.run(self._judge.start())
            if self._judge.name != name:
                raise RuntimeError(
                    f"the judge here is {self._judge.name}, not {name}: install the same version everywhere"
                )
        except BaseException:
            self._runner.close()
            raise

    def rule(self, cases: Sequence[Case]) -> Sequence[Ruling]:
        """The rulings on ``cases``, in their order."""
        return self._runner.run(self._all(cases))

    async def _all(self, cases: Sequence[Case]) -> Sequence[Ruling]:
        turns = asyncio.Semaphore(self._judge.at_once)

        async def one(case: Case) -> Ruling:
            async with turns:
                return await self._judge.judge(case)

        return await asyncio.gather(*(one(case) for case in cases))
