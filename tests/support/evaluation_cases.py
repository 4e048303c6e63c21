"""Cases and judges of the evaluation's tests: small, and with verdicts that the test decides."""

from collections.abc import Callable
from pathlib import Path

from app.evaluation.case_judge import CaseJudge, JudgeKind
from app.evaluation.cases import Case, Scoring, as_documents
from app.evaluation.evaluator import Evaluator
from app.evaluation.run_summary import Line
from app.evaluation.verdict_cache import VerdictCache
from judges.testing import ScriptedJudge, contradicts, entails
from judges.thresholds import Thresholds

TRUE = "The ferry runs every forty minutes."
FALSE = "The ferry runs every ten minutes."
UNKNOWN = "The captain paints landscapes in winter."
DOCUMENT = "The ferry runs every forty minutes between the two harbours."


def case(
    number: int | str = 1, output: str = TRUE, *, document: str = DOCUMENT, scoring: Scoring | None = None
) -> Case:
    return Case(
        case_id=f"case-{number}",
        output=output,
        documents=as_documents(document),
        scoring=scoring or Scoring(),
    )


def judge(script: ScriptedJudge | None = None, thresholds: Thresholds | None = None) -> CaseJudge:
    """One that knows the three statements above."""
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


def ignore(_line: Line) -> None:
    pass


def collect() -> tuple[list[Line], Callable[[Line], None]]:
    lines: list[Line] = []
    return lines, lines.append
