"""Who is calling: the one place that looks at the keys of a call to ``/v1`` or ``/mcp``, before any handler does.

It takes the gateway's own keys out of the headers, so that none can go upstream, whatever a handler forwards.
"""

import math
import re
from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.error_responses import error_response
from app.auth import Allowance, GatewayKey
from app.errors import GatewayError, RateLimitError, WrongKeyError
from app.resources import Resources

_GUARDED = ("/v1", "/mcp")
_BELOW = tuple(f"{path}/" for path in _GUARDED)
_REFUSED = 400
_OURS = b"x-groundlane-key"
_BEARERS = frozenset({b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", _OURS})
_KEY = re.compile(rb"(?<![A-Za-z0-9_-])gl-[a-z2-7]{8}-[A-Za-z0-9_-]*")

RawHeaders = Sequence[tuple[bytes, bytes]]


class Authentication:
    """ASGI middleware. A call that passes has ``key`` in its state: the gateway key that it brought, or None."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_guarded(scope["path"]):
            await self._app(scope, receive, send)
            return
        resources: Resources = scope["state"]["resources"]
        try:
            key = _find(scope["headers"], scope["query_string"], resources)
            allowance = None
            if key is not None and key.requests_per_minute is not None:
                allowance = await _take(key, key.requests_per_minute, resources)
        except GatewayError as error:
            await error_response(Request(scope), error)(scope, receive, send)
            return
        headers = [(name, value) for name, value in scope["headers"] if name != _OURS and not _KEY.search(value)]
        told = send if allowance is None else _telling(send, allowance)
        await self._app({**scope, "headers": headers, "state": {**scope["state"], "key": key}}, receive, told)


def _is_guarded(path: str) -> bool:
    return path.startswith(_BELOW) or path in _GUARDED


def _find(headers: RawHeaders, query: bytes, resources: Resources) -> GatewayKey | None:
    """The key of the call. Raises WrongKeyError."""
    try:
        return _look_up(headers, query, resources)
    except WrongKeyError:
        resources.metrics.observe_key_refused("wrong")
        raise


def _look_up(headers: RawHeaders, query: bytes, resources: Resources) -> GatewayKey | None:
    if _KEY.search(query):
        raise WrongKeyError("A gateway key belongs into a header, not into the URL, which is logged on its way.")
    brought = [(name, value) for name, value in headers if name in _BEARERS and value.strip()]
    given = {found for _, value in brought for found in _KEY.findall(value)}
    ours_expected = resources.settings.require_keys or any(name == _OURS for name, _ in brought)
    if not given:
        if not ours_expected:
            return None
        if not brought:
            raise WrongKeyError("No gateway key was given: send one as 'Authorization: Bearer <key>'.")
        raise WrongKeyError("The API key is not a gateway key.")
    if len(given) > 1:
        raise WrongKeyError("More than one gateway key was given.")
    text = given.pop().decode("ascii")
    key = resources.keys.find(text)
    if key is None:
        raise WrongKeyError(f"The gateway key {text[:11]} is unknown or revoked.")
    return key


async def _take(key: GatewayKey, per_minute: int, resources: Resources) -> Allowance:
    """What the limit of ``key`` allows. Raises RateLimitError."""
    allowance = await resources.limiter.take(key.id, per_minute)
    if allowance.allowed:
        return allowance
    resources.metrics.observe_key_refused("rate")
    wait_s = math.ceil(allowance.wait_s)
    error = RateLimitError(
        f"The key {key.prefix} has used its {per_minute} requests per minute. Try again in {wait_s} s."
    )
    error.headers.update({"retry-after": str(wait_s), **_limits(allowance)})
    raise error


def _limits(allowance: Allowance) -> Mapping[str, str]:
    """The limit as OpenAI's headers tell it."""
    return {
        "x-ratelimit-limit-requests": str(allowance.limit),
        "x-ratelimit-remaining-requests": str(allowance.remaining),
        "x-ratelimit-reset-requests": f"{allowance.full_s:.3f}s",
    }


def _telling(send: Send, allowance: Allowance) -> Send:
    """``send``, with the caller's own limit in the headers of the reply. The upstream's is that of the gateway's key,
    and is of use to the caller only where that is what refused the request."""
    limits = [(name.encode(), value.encode()) for name, value in _limits(allowance).items()]
    names = {name for name, _ in limits}

    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            others = [item for item in headers if item[0].lower() not in names]
            if message["status"] < _REFUSED or len(others) == len(headers):
                message = {**message, "headers": [*others, *limits]}
        await send(message)

    return tell
