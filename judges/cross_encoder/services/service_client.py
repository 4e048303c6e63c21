"""Sends requests to a service. Waits for as long as an overloaded service asks, retries after temporary failures, and
stops calling a service that keeps failing."""

import asyncio
import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from logging import getLogger
from typing import Any, Final

import httpx

from judges.circuit_breaker import MAX_FAILURES, OPEN_CIRCUIT_S, CircuitBreaker
from judges.cross_encoder.services.pair_service import (
    NoResponseError,
    PairService,
    ServiceRequest,
    UnreadableAnswerError,
)
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError, JudgeUnreachableError

log = getLogger(__name__)

_MAX_RESPONSE_BYTES: Final = 1024 * 1024
_CONNECT_S: Final = 5.0
_FIRST_BACKOFF_S: Final = 0.1
"""Pause before the first retry; it doubles each time."""
_MAX_BACKOFF_S: Final = 2.0
_MAX_PAUSE_S: Final = 60.0
"""Maximum pause in seconds. The service is called again after this time, even if it asked for a longer pause."""
_REJECTED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_TEMPORARY: Final = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)


class ServiceClient:
    """A connection pool to one service. Redirects are not followed. Proxies set in the environment are used, because
    cloud services are often reached through one. No message contains a key or any text from a request or response.

    Args:
        service: the service to call; messages mention its name and where its key comes from.
        timeout_s: time limit per request, including pauses and retries.
        connections: maximum number of connections.
        transport: replaces the network in tests.
    """

    def __init__(
        self,
        service: PairService,
        *,
        timeout_s: float,
        connections: int,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._service = service
        self._timeout_s = timeout_s
        self._client = httpx.AsyncClient(
            headers={"Accept": "application/json", "Content-Type": "application/json"},
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            transport=transport,
        )
        self._breaker = CircuitBreaker()
        self._paused_until = 0.0

    async def aclose(self) -> None:
        await self._client.aclose()

    @property
    def fault(self) -> str | None:
        """Why calls to the service are suspended; None if they aren't suspended."""
        if not self._breaker.is_open:
            return None
        return f"{self._service.name} failed {MAX_FAILURES} times in a row and is paused"

    def check(self) -> None:
        """Raise JudgeUnavailableError if the circuit is open."""
        if (fault := self.fault) is not None:
            raise JudgeUnavailableError(fault)

    async def post(self, request: ServiceRequest) -> Any:
        """Return the JSON of a successful response. Raises JudgeUnavailableError if the circuit is open or the key is
        rejected, JudgeOverloadedError if the service asks for a wait that is longer than the remaining time, and
        JudgeUnreachableError if it does not answer in time. Raises JudgeError for any other status, or if the response
        is not JSON.
        """
        self.check()
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            answer = await self._post(request, started + self._timeout_s)
        except asyncio.CancelledError:
            self._count(opened=self._breaker.cancelled(clock() - started))
            raise
        except JudgeUnreachableError:
            self._count(opened=self._breaker.failed())
            raise
        self._breaker.succeeded()
        return _parse(answer, self._service.name)

    async def _post(self, request: ServiceRequest, until: float) -> bytes:
        name, clock, backoff = self._service.name, asyncio.get_running_loop().time, _FIRST_BACKOFF_S
        while True:
            await self._wait_for_turn(until)
            status: int | None = None
            try:
                async with asyncio.timeout_at(until):
                    response, body = await self._exchange(request)
            except (TimeoutError, httpx.TimeoutException):
                raise NoResponseError(f"{name}: the service did not respond in time") from None
            except httpx.TransportError as error:
                fault: JudgeError = JudgeUnreachableError(f"{name}: {type(error).__name__}")
            else:
                status = response.status_code
                if status == HTTPStatus.OK:
                    return body
                fault = self._fault(status)
                if status not in _TEMPORARY:
                    raise fault
                if (asked := _retry_after(response)) is not None:
                    self._paused_until = max(self._paused_until, clock() + min(asked, _MAX_PAUSE_S))
            if max(clock() + backoff, self._paused_until) >= until:
                raise fault
            if self._paused_until <= clock():
                await asyncio.sleep(backoff)
            backoff = min(2 * backoff, _MAX_BACKOFF_S)

    async def _wait_for_turn(self, until: float) -> None:
        """Wait until the pause that the service asked for is over. Raises JudgeOverloadedError if that takes too
        long."""
        clock = asyncio.get_running_loop().time
        while (left := self._paused_until - clock()) > 0:
            if self._paused_until >= until:
                raise JudgeOverloadedError(f"{self._service.name}: rate limit reached; retry in {left:.1f} s")
            await asyncio.sleep(left)

    async def _exchange(self, request: ServiceRequest) -> tuple[httpx.Response, bytes]:
        body = bytearray()
        async with self._client.stream(
            "POST", request.url, content=request.body, headers=dict(request.headers)
        ) as response:
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > _MAX_RESPONSE_BYTES:
                    raise JudgeError(f"{self._service.name}: response longer than {_MAX_RESPONSE_BYTES} bytes")
        return response, bytes(body)

    def _fault(self, status: int) -> JudgeError:
        name = self._service.name
        if status in _REJECTED:
            return JudgeUnavailableError(f"{name}: key rejected ({status}); {self._service.key_help}")
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return JudgeOverloadedError(f"{name}: rate limit reached (429)")
        if status in _TEMPORARY:
            return JudgeUnreachableError(f"{name}: the service is not ready ({status})")
        return JudgeError(f"{name}: the service returned {status}")

    def _count(self, *, opened: bool) -> None:
        if opened:
            log.warning("%s keeps failing; not calling it for %g s", self._service.name, OPEN_CIRCUIT_S)


def _parse(body: bytes, name: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise UnreadableAnswerError(f"{name}: response is not JSON") from None


def _retry_after(response: httpx.Response) -> float | None:
    """Return the number of seconds to wait according to ``Retry-After`` (a number or a date), or None."""
    value = response.headers.get("retry-after", "").strip()
    if value.replace(".", "", 1).isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
