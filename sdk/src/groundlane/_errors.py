"""The exceptions, as a tree.

GroundlaneError
├── GatewayUnreachableError     no answer: no connection, connection lost, or timeout
│   ├── GatewayTimeoutError     timeout
│   └── JudgeProcessError       the local judge did not start, or ended
├── GatewayStatusError          an error response: ``status``, ``code``, ``param``
├── UnexpectedAnswerError       a response that is not from a gateway
└── PolicyViolationError        a policy blocks; the message is its reason
"""

from collections.abc import Mapping, Sequence
from typing import Any

from groundlane._types import Decision


class GroundlaneError(Exception):
    """Base class of the exceptions of this package."""


class GatewayUnreachableError(GroundlaneError):
    """The gateway gave no answer. It may have handled the request, unless the connection failed."""


class GatewayTimeoutError(GatewayUnreachableError):
    """The gateway did not answer in time."""


class JudgeProcessError(GatewayUnreachableError):
    """The judge process, which answers in place of a gateway, did not start or has ended."""


class UnexpectedAnswerError(GroundlaneError):
    """The answer is not that of a gateway; the base URL may be wrong."""


class GatewayStatusError(GroundlaneError):
    """The gateway answered with an error.

    ``status`` is the HTTP status. ``code``, ``param`` (the field concerned) and ``type`` come from the gateway's error,
    if present. ``retry_after`` is in seconds.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        type: str | None = None,
        code: str | None = None,
        param: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.type = type
        self.code = code
        self.param = param
        self.request_id = request_id
        self.retry_after = retry_after


class PolicyViolationError(GroundlaneError):
    """A policy blocks. The message is its reason, such as ``Source age (400 days) exceeds max (90 days)``; several
    reasons are joined by ``"; "``.

    ``decisions`` are all decisions, including the blocking ones. ``code`` is the reason code of the first blocking one
    (``RETRIEVAL_STALE_SOURCE``), and ``param`` is the item concerned (``documents[2]``), if there is one.
    ``abstention_response`` is the policy's text to show to the user instead, if it has one.
    """

    def __init__(
        self,
        message: str,
        *,
        decisions: Sequence[Decision] = (),
        code: str | None = None,
        param: str | None = None,
        abstention_response: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.decisions = tuple(decisions)
        self.code = code
        self.param = param
        self.abstention_response = abstention_response
        self.request_id = request_id


_VIOLATIONS = frozenset({"retrieval_policy_violation", "grounding_policy_violation"})


def error_from_response(
    status: int, body: Any, *, request_id: str | None = None, retry_after: float | None = None
) -> GatewayStatusError | PolicyViolationError:
    """The exception for an error response with ``status`` and decoded ``body``."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return GatewayStatusError(
            f"The gateway answered {status}.", status=status, request_id=request_id, retry_after=retry_after
        )
    message = str(error.get("message") or f"The gateway answered {status}.")
    kind, code, param = (_text(error.get(name)) for name in ("type", "code", "param"))
    if kind in _VIOLATIONS:
        decisions = Decision.each(error.get("violations"))
        return PolicyViolationError(message, decisions=decisions, code=code, param=param, request_id=request_id)
    return GatewayStatusError(
        message, status=status, type=kind, code=code, param=param, request_id=request_id, retry_after=retry_after
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
