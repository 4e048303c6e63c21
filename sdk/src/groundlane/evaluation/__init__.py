"""Evaluate answers against their documents, without a gateway. Needs the package ``groundlane``.

    from groundlane.evaluation import evaluate

    results = evaluate([{"output": "The tower is in Berlin.", "context": "The tower is in Paris."}])

For pytest, see ``groundlane.evaluation.pytest_plugin``.
"""

from groundlane.evaluation._evaluator import Evaluator, aevaluate, check_grounded, evaluate
from groundlane.evaluation._results import EvaluatedClaim, EvaluationResult, Passage

__all__ = [
    "EvaluatedClaim",
    "EvaluationResult",
    "Evaluator",
    "Passage",
    "aevaluate",
    "check_grounded",
    "evaluate",
]
