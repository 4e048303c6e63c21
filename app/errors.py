"""The hierarchy of errors that clients can receive.

GatewayError
├── InvalidRequestError        400/413/415: the request is malformed; names the field
│   ├── UnknownModelError      404: no upstream serves the model
│   └── RunError               404/409/400: the run does not exist, is complete, or is full
├── WrongKeyError              401: no gateway key, or an invalid one
├── KeyLimitError              403: the gateway key does not allow that model or collection
├── LlmCheckError              403: the caller may not request an LLM judge, or this judge model
├── UngovernedPathError        403: policies don't apply to the path, and it isn't open for forwarding
├── RateLimitError             429: the gateway key exceeded its rate limit
├── BudgetError                429: a budget of the key or the agent is used up
├── UncountedError             403: the request can't be counted toward a budget of the key or the agent
├── PolicyBlockedError         400: a policy refused the request or the reply
├── UpstreamConnectError       502: the upstream is unreachable, or the connection was lost
├── UpstreamTimeoutError       504: the upstream did not respond in time
├── UpstreamKeyError           502: the secret that holds the upstream's key does not exist
├── EventLostError             503: the request's event cannot be stored (with ``sync`` durability)
└── AdminError                 4xx under /admin, as RFC 9457 problem JSON
    ├── UnauthorizedError      401
    ├── SignInError            403: signing in with the provider failed
    ├── ForbiddenError         403: the role does not permit the operation
    ├── NotFoundError          404
    ├── ConflictError          409
    ├── PreconditionError      412: stale ETag
    └── InvalidAdminRequestError   422: ``errors[{loc, msg}]``
"""

from collections.abc import Mapping, Sequence
from typing import Any


class GatewayError(Exception):
    """Base class for all errors that clients receive. Other exceptions are logged as crashes. ``status`` and
    ``headers`` are the HTTP status and headers of the response."""

    status = 500
    type = "server_error"
    code: str | None = None

    def __init__(self, message: str, *, param: str | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.headers: dict[str, str] = {}
        if status is not None:
            self.status = status

    def body(self) -> dict[str, Any]:
        """Return the error in OpenAI's format."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class InvalidRequestError(GatewayError):
    status = 400
    type = "invalid_request_error"


class MethodNotAllowedError(InvalidRequestError):
    status = 405

    def __init__(self, message: str, *, allow: str) -> None:
        super().__init__(message)
        self.headers = {"Allow": allow}


class UnknownModelError(InvalidRequestError):
    status = 404
    code = "model_not_found"


class WrongKeyError(GatewayError):
    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"


class KeyLimitError(GatewayError):
    status = 403
    type = "permission_error"

    def __init__(self, message: str, *, code: str, param: str) -> None:
        super().__init__(message, param=param)
        self.code = code


class LlmCheckError(GatewayError):
    status = 403
    type = "permission_error"
    code = "llm_check_not_allowed"


class UngovernedPathError(GatewayError):
    """``path`` is the part of the URL path after ``/v1/``."""

    status = 403
    type = "permission_error"
    code = "UNGOVERNED_PATH"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"The gateway can't check replies from /v1/{path:.200}, so it doesn't forward this request. To "
            "allow this path, an operator can add it to GROUNDLANE_PASSTHROUGH.",
            param="path",
        )


class RateLimitError(GatewayError):
    status = 429
    type = "requests"
    code = "rate_limit_exceeded"


class BudgetError(GatewayError):
    """``budget`` describes the budget: its subject, its limit, the remaining amount, and when it resets."""

    status = 429
    type = "insufficient_quota"
    code = "budget_exceeded"

    def __init__(self, message: str, *, budget: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.budget = budget

    def body(self) -> dict[str, Any]:
        body = super().body()
        body["error"]["budget"] = dict(self.budget)
        return body


class UncountedError(GatewayError):
    status = 403
    type = "permission_error"
    code = "not_countable"


class RunError(InvalidRequestError):
    """A run cannot be read or written. ``code`` is ``run_not_found``, ``run_completed`` or ``run_full``."""

    def __init__(self, message: str, *, code: str, status: int, param: str = "run_id") -> None:
        super().__init__(message, param=param, status=status)
        self.code = code


class PolicyBlockedError(GatewayError):
    """``violations`` contains all decisions on the request, in the format of the event log."""

    status = 400

    def __init__(
        self,
        message: str,
        *,
        type: str,
        code: str | None,
        param: str | None,
        violations: Sequence[Mapping[str, Any]],
    ) -> None:
        super().__init__(message, param=param)
        self.type = type
        self.code = code
        self.violations = list(violations)

    def body(self) -> dict[str, Any]:
        body = super().body()
        body["error"]["violations"] = self.violations
        return body


class UpstreamConnectError(GatewayError):
    status = 502
    type = "upstream_error"
    code = "upstream_unreachable"


class UpstreamTimeoutError(GatewayError):
    status = 504
    type = "upstream_error"
    code = "upstream_timeout"


class UpstreamKeyError(GatewayError):
    status = 502
    type = "upstream_error"
    code = "upstream_key_missing"


class EventLostError(GatewayError):
    """Neither the database nor the journal can store the event, so the request must not be reported as successful."""

    status = 503
    code = "event_not_stored"

    def __init__(self) -> None:
        super().__init__("The record of this request could not be stored. Try again.")


class AdminError(GatewayError):
    """``title`` is the RFC 9457 title. ``errors`` lists the errors by field."""

    title = "Error"

    def __init__(self, message: str, *, errors: Sequence[Mapping[str, Any]] = (), status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.errors = list(errors)

    def problem(self) -> dict[str, Any]:
        """Return the error as RFC 9457 problem JSON."""
        problem: dict[str, Any] = {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.message,
        }
        if self.errors:
            problem["errors"] = self.errors
        return problem


class UnauthorizedError(AdminError):
    status = 401
    title = "Unauthorized"


class ForbiddenError(AdminError):
    status = 403
    title = "Forbidden"


class SignInError(AdminError):
    status = 403
    title = "Forbidden"


class NotFoundError(AdminError):
    status = 404
    title = "Not found"


class ConflictError(AdminError):
    status = 409
    title = "Conflict"


class PreconditionError(AdminError):
    status = 412
    title = "Precondition failed"


class InvalidAdminRequestError(AdminError):
    status = 422
    title = "Unprocessable content"
