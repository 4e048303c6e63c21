"""Small cases, and judges with scripted verdicts, for tests of evaluations."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from app.evaluation.cases.case import Case, Scoring, read_case
from app.evaluation.cases.case_result import CaseResult
from app.evaluation.judging.case_judge import CaseJudge, JudgeKind
from app.evaluation.judging.evaluator import Evaluator
from app.evaluation.judging.verdict_cache import VerdictCache
from app.evaluation.runs.run_summary import CaseLine
from judges.label_thresholds import Thresholds
from judges.testing import ScriptedJudge, contradicts, entails

TRUE = "The ferry runs every forty minutes."
FALSE = "The ferry runs every ten minutes."
UNKNOWN = "The captain paints landscapes in winter."
DOCUMENT = "The ferry runs every forty minutes between the two harbours."


def case(
    number: int | str = 1, output: str = TRUE, *, document: str = DOCUMENT, scoring: Scoring | None = None
) -> Case:
    read = read_case({"case_id": f"case-{number}", "output": output, "documents": [document]})
    return replace(read, scoring=scoring or Scoring())


def judge(script: ScriptedJudge | None = None, thresholds: Thresholds | None = None) -> CaseJudge:
    """Return a judge that knows the three statements above."""
    return CaseJudge(
        JudgeKind.CROSS_ENCODER,
        scorer=script or scripted(),
        thresholds=thresholds,
        fingerprint="test",
    )


def scripted() -> ScriptedJudge:
    return ScriptedJudge({TRUE: entails(0.97), FALSE: contradicts(0.96)})


def evaluator(
    script: ScriptedJudge | None = None, cache: Path | None = None, thresholds: Thresholds | None = None
) -> Evaluator:
    return Evaluator(judge(script, thresholds), None if cache is None else VerdictCache(cache))


async def evaluate_all(evaluator: Evaluator, cases: Sequence[Case]) -> Sequence[CaseResult]:
    """Evaluate all ``cases`` at once and return the results."""
    return await asyncio.gather(*map(evaluator.evaluate, cases))


def ignore(_line: CaseLine) -> None:
    pass


def collect() -> tuple[list[CaseLine], Callable[[CaseLine], None]]:
    lines: list[CaseLine] = []
    return lines, lines.append
