"""Evaluation of answers by their documents, as files or from Python.

    from app.evaluation import evaluate, read_case

    results = evaluate([read_case({"output": "The tower is in Berlin.", "context": "The tower is in Paris."})])

``aevaluate`` does the same where an event loop runs; ``app.evaluation.pytest_plugin`` brings it to pytest.
"""

from app.evaluation.case_files import CaseFileError, read_cases
from app.evaluation.case_judge import JudgeKind
from app.evaluation.case_result import CaseResult, Cost, JudgedClaim, Passage
from app.evaluation.cases import Case, CaseError, Scoring, ScoringMode, read_case
from app.evaluation.evaluator import Evaluator, GroundingTester, aevaluate, evaluate, open_evaluator
from app.evaluation.verdict_cache import CacheError

__all__ = [
    "CacheError",
    "Case",
    "CaseError",
    "CaseFileError",
    "CaseResult",
    "Cost",
    "Evaluator",
    "GroundingTester",
    "JudgeKind",
    "JudgedClaim",
    "Passage",
    "Scoring",
    "ScoringMode",
    "aevaluate",
    "evaluate",
    "open_evaluator",
    "read_case",
    "read_cases",
]
