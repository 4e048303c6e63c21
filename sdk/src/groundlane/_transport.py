"""Requests, responses and retries of gateway calls, for both clients."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from random import SystemRandom
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx

from groundlane._errors import (
    GatewayTimeoutError,
    GatewayUnreachableError,
    GroundlaneError,
    UnexpectedAnswerError,
    error_from_response,
)
from groundlane._version import VERSION

DEFAULT_BASE_URL = "http://localhost:8080"
DEFAULT_TIMEOUT_S = 60.0
DEFAULT_RETRIES = 2
_CONNECT_TIMEOUT_S = 5.0
_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 8.0
_LONGEST_RETRY_AFTER_S = 30.0
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_TRANSIENT = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})
_random = SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call to the gateway. ``repeatable`` means that the call itself is idempotent. An idempotency ``key`` makes any
    call idempotent."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    repeatable: bool = False
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The gateway's address and credentials. ``repr`` and ``str`` leave out the key and any password."""

    base_url: str = field(repr=False)
    api_key: str | None = field(default=None, repr=False)
    retries: int = DEFAULT_RETRIES

    @classmethod
    def of(cls, base_url: str | None, api_key: str | None, retries: int) -> "Endpoint":
        """Validate the arguments. Arguments that are None are read from the environment. Raises ValueError."""
        url = base_url or os.environ.get("GROUNDLANE_BASE_URL") or DEFAULT_BASE_URL
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ValueError(f"base_url must be an http or https URL, not {without_userinfo(url)!r}")
        if retries < 0:
            raise ValueError(f"max_retries must be 0 or more, not {retries}")
        # The URL of an OpenAI client works too.
        url = url.rstrip("/").removesuffix("/v1")
        return cls(base_url=url, api_key=api_key or os.environ.get("GROUNDLANE_API_KEY") or None, retries=retries)

    def __str__(self) -> str:
        return without_userinfo(self.base_url)

    def request(self, call: Call) -> dict[str, Any]:
        """Return the arguments for the ``request`` method of an httpx client."""
        headers = {"accept": "application/json", "user-agent": f"groundlane-python/{VERSION}"}
        if self.api_key is not None:
            headers["authorization"] = f"Bearer {self.api_key}"
        if call.key is not None:
            headers["idempotency-key"] = call.key
        return {"method": call.method, "url": self.base_url + call.path, "headers": headers, "json": call.body}

    def delay_after(self, call: Call, attempt: int, outcome: httpx.Response | httpx.TransportError) -> float | None:
        """Return how many seconds to wait before retrying ``call``, or None if it must not be retried. ``attempt``
        counts from 0.

        A call that the gateway may have handled is retried only if it is idempotent. A 429 means that the gateway
        didn't handle the call.
        """
        if attempt >= self.retries:
            return None
        repeatable = call.repeatable or call.key is not None
        if isinstance(outcome, httpx.TransportError):
            again = repeatable or isinstance(outcome, _NEVER_SENT)
        else:
            status = outcome.status_code
            again = status == HTTPStatus.TOO_MANY_REQUESTS or (repeatable and status in _TRANSIENT)
        if not again:
            return None
        wanted = _retry_after(outcome) if isinstance(outcome, httpx.Response) else None
        if wanted is not None:
            return wanted if wanted <= _LONGEST_RETRY_AFTER_S else None
        return min(_FIRST_DELAY_S * 2.0**attempt, _LONGEST_DELAY_S) * _random.uniform(0.75, 1.0)

    def read(self, response: httpx.Response) -> Mapping[str, Any]:
        """Decode the JSON object in ``response``. Raises GroundlaneError for an error response, or if the body is not a
        JSON object."""
        try:
            body = response.json()
        except ValueError:
            body = None
        request_id = response.headers.get("x-groundlane-request-id")
        retry_after = _retry_after(response)
        if not response.is_success:
            raise error_from_response(response.status_code, body, request_id=request_id, retry_after=retry_after)
        if not isinstance(body, Mapping):
            raise UnexpectedAnswerError(f"{self} returned {response.status_code} without a JSON object.")
        return body

    def unreachable(self, error: httpx.TransportError) -> GroundlaneError:
        if isinstance(error, httpx.TimeoutException):
            return GatewayTimeoutError(f"{self} did not respond in time ({type(error).__name__}).")
        return GatewayUnreachableError(f"{self} is unreachable: {error or type(error).__name__}")


def timeouts(timeout: float) -> httpx.Timeout:
    """Build httpx timeouts: ``timeout`` seconds for each read and write, and less for connecting."""
    return httpx.Timeout(timeout, connect=min(timeout, _CONNECT_TIMEOUT_S))


def segment(text: str) -> str:
    """Escape ``text`` for use as a single path segment."""
    return quote(text, safe="")


def without_userinfo(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    return float(value) if value.isdecimal() else None
