"""Runs several judges, one after the other, on the same labelled cases."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from app.evaluation.cases.case import Case
from app.evaluation.cases.case_result import CaseResult, Cost
from app.evaluation.judge_comparison.discrimination import balanced_accuracy, roc_auc
from app.evaluation.judge_comparison.labels import is_supported
from app.evaluation.judging.evaluator import open_evaluator
from app.evaluation.runs.confidence_intervals import Estimate, share
from app.evaluation.runs.run_summary import total_cost
from app.judge_runtime.offline import JudgeMissingError
from app.settings import Settings
from judges.label_thresholds import Thresholds
from judges.types import Label

_NO_VALUE: Final = Estimate(value=None)
_NO_COST: Final = Cost()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeLine:
    """The results of one judge.

    A case is accepted if all of its claims are supported. Its score is the lowest P(supported) of its claims.

    - ``cases``: the number of cases that the figures cover, excluding ``without_claims`` and ``failed``.
    - ``false_blocks``: the share of supported cases that the judge rejects.
    - ``missed``: the share of unsupported cases that the judge accepts.
    - ``ms_per_case``: the duration of the run divided by the number of cases judged in it, excluding cached cases. None
      if all cases are cached.
    - ``fault``: why the judge could not be used, in which case the figures are missing.
    """

    spec: str
    judge: str = ""
    cases: int = 0
    without_claims: int = 0
    failed: int = 0
    balanced_accuracy: Estimate = _NO_VALUE
    roc_auc: Estimate = _NO_VALUE
    false_blocks: Estimate = _NO_VALUE
    missed: Estimate = _NO_VALUE
    ms_per_case: float | None = None
    cost: Cost = _NO_COST
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeComparison:
    """The results of all judges, with the number of cases for each label."""

    supported: int
    unsupported: int
    judges: Sequence[JudgeLine]


async def compare_judges(
    cases: Sequence[Case],
    specs: Sequence[str],
    settings: Settings,
    *,
    thresholds: Thresholds,
    cache: Path | None,
    progress: Callable[[], None] = lambda: None,
) -> JudgeComparison:
    """Judge ``cases`` with each of the judges in ``specs``. ``progress`` is called after each case.

    A judge that cannot be loaded does not stop the others. Raises LabelError, CacheError, and SettingsError for an
    invalid spec.
    """
    labels = [is_supported(case) for case in cases]
    openings = [settings.model_copy(update={"judge": spec}) for spec in specs]
    for opening in openings:
        await open_evaluator(opening, thresholds=thresholds).aclose()  # finds invalid specs before anything is judged
    lines = [await _line(cases, labels, opening, thresholds, cache, progress) for opening in openings]
    return JudgeComparison(supported=sum(labels), unsupported=len(labels) - sum(labels), judges=lines)


async def _line(
    cases: Sequence[Case],
    labels: Sequence[bool],
    settings: Settings,
    thresholds: Thresholds,
    cache: Path | None,
    progress: Callable[[], None],
) -> JudgeLine:
    try:
        async with open_evaluator(settings, thresholds=thresholds, cache=cache) as evaluator:
            slots = asyncio.Semaphore(evaluator.at_once)

            async def judge(case: Case) -> CaseResult:
                async with slots:
                    result = await evaluator.evaluate(case)
                progress()
                return result

            started = monotonic()
            results = await asyncio.gather(*(judge(case) for case in cases))
            elapsed_ms = (monotonic() - started) * 1e3
            judged, name = evaluator.judged, evaluator.judge.name
    except JudgeMissingError as error:
        return JudgeLine(spec=settings.judge, fault=str(error))
    return _figures(settings.judge, name, labels, results, elapsed_ms / judged if judged else None)


def _figures(
    spec: str, name: str, labels: Sequence[bool], results: Sequence[CaseResult], ms_per_case: float | None
) -> JudgeLine:
    counting = [
        (label, result)
        for label, result in zip(labels, results, strict=True)
        if result.error is None and result.skipped is None
    ]
    truth = [label for label, _ in counting]
    accepted = [all(claim.label is Label.SUPPORTED for claim in result.claims) for _, result in counting]
    scores = [min(claim.entailed for claim in result.claims) for _, result in counting]
    of_supported = [accept for label, accept in zip(truth, accepted, strict=True) if label]
    of_unsupported = [accept for label, accept in zip(truth, accepted, strict=True) if not label]
    return JudgeLine(
        spec=spec,
        judge=name,
        cases=len(counting),
        without_claims=sum(result.skipped is not None for result in results),
        failed=sum(result.error is not None for result in results),
        balanced_accuracy=balanced_accuracy(truth, accepted),
        roc_auc=roc_auc(truth, scores),
        false_blocks=share(len(of_supported) - sum(of_supported), len(of_supported)),
        missed=share(sum(of_unsupported), len(of_unsupported)),
        ms_per_case=ms_per_case,
        cost=total_cost([result.cost for result in results if not result.cached]),
    )
