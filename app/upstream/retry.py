"""Classifies the result of an attempt, and decides whether to retry, with the same upstream after a pause or with a
fallback."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
from msgspec import Struct

from app.errors import UpstreamConnectError, UpstreamTimeoutError

_TOO_MANY = 429
_UNAVAILABLE = frozenset({502, 503, 504, 529})
"""The statuses that mean that the upstream is unavailable. 529 is Anthropic's status for "overloaded"."""

_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 4.0

_LONGEST_DETAIL = 500

_RANDOM = random.SystemRandom()


class AttemptResult(Struct, frozen=True, kw_only=True):
    """The result of an attempt, which has either a ``response`` or an ``error``. ``kind`` names the failure, if there
    was one. ``detail`` describes an error for the log.

    ``again`` means that the same upstream may be called again after at least ``after_s`` seconds. ``elsewhere`` means
    that a fallback may be called.
    """

    response: httpx.Response | None = None
    error: UpstreamConnectError | UpstreamTimeoutError | None = None
    kind: str | None = None
    detail: str | None = None
    again: bool = False
    elsewhere: bool = False
    after_s: float = 0.0

    async def discard(self) -> None:
        if self.response is not None:
            await self.response.aclose()


def result_of_response(
    response: httpx.Response, *, repeatable: bool, retry_429: bool, max_retry_after: float
) -> AttemptResult:
    """Classify a response by its status. ``repeatable`` means that the request may safely be sent twice."""
    status = response.status_code
    if status not in _UNAVAILABLE and status != _TOO_MANY:
        return AttemptResult(response=response)
    refused = status != _TOO_MANY or retry_429
    kind = f"status_{status // 100}xx"
    if not (refused and repeatable):
        return AttemptResult(response=response, kind=kind)
    after = retry_after(response.headers)
    return AttemptResult(
        response=response,
        kind=kind,
        again=after is None or after <= max_retry_after,
        elsewhere=True,
        after_s=after or 0.0,
    )


def result_of_error(error: httpx.HTTPError, *, replayable: bool, repeatable: bool) -> AttemptResult:
    """Classify a failure that occurred before there was a response. ``replayable`` means that the body of the request
    is still available."""
    ours, detail = translate(error), _detail(error)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return AttemptResult(error=ours, kind="connect", detail=detail, again=replayable, elsewhere=replayable)
    if isinstance(error, httpx.TimeoutException):
        # The upstream may still be working on the request, so it isn't called again.
        return AttemptResult(error=ours, kind="timeout", detail=detail, elsewhere=repeatable)
    return AttemptResult(error=ours, kind="connect", detail=detail, again=repeatable, elsewhere=repeatable)


def _detail(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")[:_LONGEST_DETAIL]


def translate(error: httpx.HTTPError) -> UpstreamConnectError | UpstreamTimeoutError:
    """Convert an httpx error to a gateway error. The message contains no address and no key."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return UpstreamConnectError("The upstream is unreachable.")
    if isinstance(error, httpx.TimeoutException):
        return UpstreamTimeoutError("The upstream did not respond in time.")
    return UpstreamConnectError("The connection to the upstream was lost.")


def pause(attempt: int, after_s: float) -> float:
    """Return the number of seconds to wait after attempt number ``attempt``, counted from 0. The pause is random, so
    that callers that failed together don't retry together. It is never shorter than ``after_s``, the pause that the
    upstream asked for."""
    longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**attempt)
    return after_s + _RANDOM.uniform(0.5, 1.0) * longest


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the number of seconds in ``retry-after-ms`` or ``Retry-After`` (RFC 9110, section 10.2.3)."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if value.replace(".", "", 1).isdecimal() and len(value) < 12:
            return float(value) * unit
    try:
        due = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    due = due if due.tzinfo is not None else due.replace(tzinfo=UTC)
    return max(0.0, (due - datetime.now(UTC)).total_seconds())
