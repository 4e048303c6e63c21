"""Checks the API key and rate limit of every call to ``/v1`` and ``/mcp`` before a handler runs."""

import math
from collections.abc import Mapping

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.error_responses import error_response
from app.auth import Allowance, GatewayKey
from app.auth.api_key_check import check_api_key, without_api_keys
from app.errors import GatewayError, RateLimitError, WrongKeyError
from app.resources import Resources

_GUARDED = ("/v1", "/mcp")
_BELOW = tuple(f"{path}/" for path in _GUARDED)
_FIRST_ERROR_STATUS = 400


class ApiKeyMiddleware:
    """ASGI middleware. For each accepted call, sets ``key`` in the request state to its gateway key, or None."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_guarded(scope["path"]):
            await self._app(scope, receive, send)
            return
        resources: Resources = scope["state"]["resources"]
        try:
            key = _check(scope, resources)
            allowance = None
            if key is not None and key.requests_per_minute is not None:
                allowance = await _take(key, key.requests_per_minute, resources)
        except GatewayError as error:
            await error_response(Request(scope), error)(scope, receive, send)
            return
        headers = without_api_keys(scope["headers"], is_admin=resources.admin.accepts)
        inner = {**scope, "headers": headers, "state": {**scope["state"], "key": key}}
        await self._app(inner, receive, send if allowance is None else _with_limits(send, allowance))


def _is_guarded(path: str) -> bool:
    return path.startswith(_BELOW) or path in _GUARDED


def _check(scope: Scope, resources: Resources) -> GatewayKey | None:
    required = resources.settings.require_keys
    try:
        return check_api_key(scope["headers"], scope["query_string"], resources.keys, required=required)
    except WrongKeyError:
        resources.metrics.observe_key_refused("wrong")
        raise


async def _take(key: GatewayKey, per_minute: int, resources: Resources) -> Allowance:
    """Count the request against the limit of ``key``. Raises RateLimitError."""
    allowance = await resources.limiter.take(key.id, per_minute)
    if allowance.allowed:
        return allowance
    resources.metrics.observe_key_refused("rate")
    wait_s = math.ceil(allowance.wait_s)
    error = RateLimitError(
        f"The key {key.prefix} has reached its limit of {per_minute} requests per minute. Try again in {wait_s} s."
    )
    error.headers.update({"retry-after": str(wait_s), **_limit_headers(allowance)})
    raise error


def _limit_headers(allowance: Allowance) -> Mapping[str, str]:
    """Return OpenAI's rate limit headers."""
    return {
        "x-ratelimit-limit-requests": str(allowance.limit),
        "x-ratelimit-remaining-requests": str(allowance.remaining),
        "x-ratelimit-reset-requests": f"{allowance.full_s:.3f}s",
    }


def _with_limits(send: Send, allowance: Allowance) -> Send:
    """Wrap ``send`` to add the key's rate limit headers to the response.

    They replace the upstream's headers, which describe the gateway's own account. If the upstream rejected the request
    because of its rate limit, the upstream's headers are kept.
    """
    limits = [(name.encode(), value.encode()) for name, value in _limit_headers(allowance).items()]
    names = {name for name, _ in limits}

    async def send_with_limits(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            others = [item for item in headers if item[0].lower() not in names]
            if message["status"] < _FIRST_ERROR_STATUS or len(others) == len(headers):
                message = {**message, "headers": [*others, *limits]}
        await send(message)

    return send_with_limits
