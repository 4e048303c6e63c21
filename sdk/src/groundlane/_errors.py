"""What can go wrong, as a tree.

GroundlaneError
├── GatewayUnreachableError     no answer: not connected, broken off, or too late
│   ├── GatewayTimeoutError     too late
│   └── JudgeProcessError       the local judge did not start, or ended
├── GatewayStatusError          an answer that is an error: ``status``, ``code``, ``param``
├── UnexpectedAnswerError       an answer that is none of the gateway's
└── PolicyViolationError        a policy blocks; the message is its reason
"""

from collections.abc import Mapping, Sequence
from typing import Any

from groundlane._types import Decision


class GroundlaneError(Exception):
    """Base of every error of this package."""


class GatewayUnreachableError(GroundlaneError):
    """The gateway gave no answer. Whether it handled the request is not known unless the connection failed."""


class GatewayTimeoutError(GatewayUnreachableError):
    """The gateway gave no answer in time."""


class JudgeProcessError(GatewayUnreachableError):
    """The judge process, which answers in place of a gateway, did not start or has ended."""


class UnexpectedAnswerError(GroundlaneError):
    """Something answered that does not speak as a gateway does; the base URL may be wrong."""


class GatewayStatusError(GroundlaneError):
    """The gateway answered with an error.

    ``status`` is HTTP's; ``code``, ``param`` (the field it is about) and ``type`` are the gateway's, if it gave them;
    ``retry_after`` is in seconds.
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
    """A policy blocks. The message is its reason, such as ``Source age (400 days) exceeds max (90 days)``; several are
    joined by ``"; "``.

    ``decisions`` are all that were taken, the blocking ones among them. ``code`` is the reason code of the first of
    those (``RETRIEVAL_STALE_SOURCE``), ``param`` what it is about (``documents[2]``), if it is about one thing.
    ``abstention_response`` is what the policy wants said to the user instead, if it wants something.
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


def error_of(
    status: int, body: Any, *, request_id: str | None = None, retry_after: float | None = None
) -> GatewayStatusError | PolicyViolationError:
    """The error that an answer with ``status`` and (decoded) ``body`` stands for."""
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
