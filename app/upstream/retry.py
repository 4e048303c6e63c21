"""What came of an attempt, and whether another may be made: here, after a pause, or at another upstream."""

import random
from collections.abc import Mapping
from copy import copy
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
from msgspec import Struct

from app.errors import UpstreamConnectError, UpstreamTimeoutError

_TOO_MANY = 429
_UNAVAILABLE = frozenset({502, 503, 504, 529})
"""529 is Anthropic's "overloaded"."""

_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 4.0

_LONGEST_DETAIL = 500

_RANDOM = random.SystemRandom()


class Outcome(Struct, frozen=True, kw_only=True):
    """Either ``response`` or ``error``. ``kind`` names what went wrong, if anything; ``detail`` says of an error, to an
    operator alone, what it was.

    ``again``: the same upstream may be asked once more, not before ``after_s`` have passed. ``elsewhere``: another may.
    """

    response: httpx.Response | None = None
    error: UpstreamConnectError | UpstreamTimeoutError | None = None
    kind: str | None = None
    detail: str | None = None
    again: bool = False
    elsewhere: bool = False
    after_s: float = 0.0

    def result(self) -> httpx.Response:
        """The response, or else the error is raised."""
        if self.response is None:
            # What is raised has the frames that this is in.
            raise copy(self.error) or UpstreamConnectError("The upstream could not be reached.")
        return self.response

    async def discard(self) -> None:
        if self.response is not None:
            await self.response.aclose()


def of_response(response: httpx.Response, *, repeatable: bool, retry_429: bool, max_retry_after: float) -> Outcome:
    """Judge a response by its status. ``repeatable``: to send the request twice does no harm."""
    status = response.status_code
    if status not in _UNAVAILABLE and status != _TOO_MANY:
        return Outcome(response=response)
    refused = status != _TOO_MANY or retry_429
    kind = f"status_{status // 100}xx"
    if not (refused and repeatable):
        return Outcome(response=response, kind=kind)
    after = retry_after(response.headers)
    return Outcome(
        response=response,
        kind=kind,
        again=after is None or after <= max_retry_after,
        elsewhere=True,
        after_s=after or 0.0,
    )


def of_error(error: httpx.HTTPError, *, replayable: bool, repeatable: bool) -> Outcome:
    """Judge a failure before any byte of a response. ``replayable``: the request's body is at hand still."""
    ours, detail = translate(error), _detail(error)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return Outcome(error=ours, kind="connect", detail=detail, again=replayable, elsewhere=replayable)
    if isinstance(error, httpx.TimeoutException):
        # The upstream may be at work on it still: the same one is not asked to do it all over again.
        return Outcome(error=ours, kind="timeout", detail=detail, elsewhere=repeatable)
    return Outcome(error=ours, kind="connect", detail=detail, again=repeatable, elsewhere=repeatable)


def _detail(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")[:_LONGEST_DETAIL]


def translate(error: httpx.HTTPError) -> UpstreamConnectError | UpstreamTimeoutError:
    """Ours for httpx's. The message names no address and no key."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return UpstreamConnectError("The upstream could not be reached.")
    if isinstance(error, httpx.TimeoutException):
        return UpstreamTimeoutError("The upstream did not answer in time.")
    return UpstreamConnectError("The connection to the upstream broke.")


def pause(attempt: int, after_s: float) -> float:
    """Seconds to wait before the attempt that follows number ``attempt`` (from 0).

    At random, so that callers who failed together do not come back together; never less than the upstream asked for.
    """
    longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**attempt)
    return after_s + _RANDOM.uniform(0.5, 1.0) * longest


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that ``retry-after-ms`` or ``Retry-After`` (RFC 9110, section 10.2.3) asks for."""
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
