"""Errors in the format of the Messages API."""

from typing import Any

from app.errors import GatewayError

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_SERVER_ERROR = 500


def error_body(error: GatewayError) -> dict[str, Any]:
    """Build the error in Anthropic's format, with the additional fields ``kind`` (its type in the other APIs),
    ``code``, ``param`` and ``violations``."""
    other = "api_error" if error.status >= _SERVER_ERROR else "invalid_request_error"
    told = error.body()["error"]
    more = {name: value for name, value in told.items() if name not in ("type", "message") and value is not None}
    kind = _TYPES.get(error.status, other)
    if told["type"] != kind:
        more["kind"] = told["type"]
    return {"type": "error", "error": {"type": kind, "message": error.message, **more}}
