"""Client for the Groundlane gateway: agent runs under policies, and grounding checks.

For verdicts on the replies of an ``openai`` client, see ``groundlane.openai``.
"""

from groundlane._client import AsyncGroundlane, Groundlane
from groundlane._errors import (
    GatewayStatusError,
    GatewayTimeoutError,
    GatewayUnreachableError,
    GroundlaneError,
    JudgeProcessError,
    PolicyViolationError,
    UnexpectedAnswerError,
)
from groundlane._observe import current_async_run, current_run, observe
from groundlane._results import CheckResult, RunRecord
from groundlane._runs import AsyncRun, Recorded, Run
from groundlane._types import Claim, Decision, Document, Grounding, Retrieval, Source, Span, UnjudgedPart
from groundlane._version import VERSION as __version__

__all__ = [
    "AsyncGroundlane",
    "AsyncRun",
    "CheckResult",
    "Claim",
    "Decision",
    "Document",
    "GatewayStatusError",
    "GatewayTimeoutError",
    "GatewayUnreachableError",
    "Grounding",
    "Groundlane",
    "GroundlaneError",
    "JudgeProcessError",
    "PolicyViolationError",
    "Recorded",
    "Retrieval",
    "Run",
    "RunRecord",
    "Source",
    "Span",
    "UnexpectedAnswerError",
    "UnjudgedPart",
    "__version__",
    "current_async_run",
    "current_run",
    "observe",
]
