"""The exception hierarchy.

GroundlaneError
├── GatewayUnreachableError     no response: no connection, connection lost, or timeout
│   ├── GatewayTimeoutError     the gateway did not respond in time
│   └── JudgeProcessError       the local judge failed to start, or exited
├── GatewayStatusError          an error response: ``status``, ``code``, ``param``
├── UnexpectedAnswerError       a response that doesn't come from a Groundlane gateway
└── PolicyViolationError        a policy blocked; the message is its reason
"""

from collections.abc import Mapping, Sequence
from typing import Any

from groundlane._types import Decision


class GroundlaneError(Exception):
    """Base class of the exceptions of this package."""


class GatewayUnreachableError(GroundlaneError):
    """The gateway did not respond. Unless the connection failed, the gateway may have handled the request."""


class GatewayTimeoutError(GatewayUnreachableError):
    """The gateway did not respond in time."""


class JudgeProcessError(GatewayUnreachableError):
    """The local judge process, used instead of a gateway, failed to start or has exited."""


class UnexpectedAnswerError(GroundlaneError):
    """The response did not come from a Groundlane gateway. The base URL may be wrong."""


class GatewayStatusError(GroundlaneError):
    """The gateway returned an error.

    ``status`` is the HTTP status. ``code``, ``param`` (the invalid field) and ``type`` are copied from the error in the
    response, or None. ``retry_after`` is in seconds.
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
    """A policy blocked the request or run. The message is the reason, such as ``Source age (400 days) exceeds max (90
    days)``. Several reasons are joined by ``"; "``.

    ``decisions`` contains all decisions, not only those that block. ``code`` is the reason code of the first blocking
    decision, such as ``RETRIEVAL_STALE_SOURCE``. ``param`` is the item that this decision is about, such as
    ``documents[2]``, or None. ``abstention_response`` is the policy's text to show the user instead of an answer, or
    None.
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
    """Build the exception for an error response with ``status`` and the decoded ``body``."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return GatewayStatusError(
            f"The gateway returned status {status}.", status=status, request_id=request_id, retry_after=retry_after
        )
    message = str(error.get("message") or f"The gateway returned status {status}.")
    kind, code, param = (_text(error.get(name)) for name in ("type", "code", "param"))
    if kind in _VIOLATIONS:
        decisions = Decision.each(error.get("violations"))
        return PolicyViolationError(message, decisions=decisions, code=code, param=param, request_id=request_id)
    return GatewayStatusError(
        message, status=status, type=kind, code=code, param=param, request_id=request_id, retry_after=retry_after
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
