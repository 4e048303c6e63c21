"""Synchronous and asynchronous connections to a gateway, with retries."""

import time
from collections.abc import Mapping
from typing import Any

import anyio
import httpx

from groundlane._transport import Call, Endpoint, timeouts


class Session:
    """A synchronous connection to a gateway. ``close`` closes the HTTP client, unless the caller provided that
    client."""

    def __init__(self, endpoint: Endpoint, *, timeout: float, http_client: httpx.Client | None = None) -> None:
        self.endpoint = endpoint
        self._given = http_client is not None
        self._http = http_client or httpx.Client(timeout=timeouts(timeout))

    def send(self, call: Call) -> Mapping[str, Any]:
        """Send ``call`` and return the gateway's JSON response. Raises GroundlaneError."""
        outcome, attempt = self._try(call), 0
        while (delay := self.endpoint.delay_after(call, attempt, outcome)) is not None:
            time.sleep(delay)
            outcome, attempt = self._try(call), attempt + 1
        return _answer(self.endpoint, outcome)

    def close(self) -> None:
        if not self._given:
            self._http.close()

    def _try(self, call: Call) -> httpx.Response | httpx.TransportError:
        try:
            return self._http.request(**self.endpoint.request(call))
        except httpx.TransportError as error:
            return error


class AsyncSession:
    """``Session`` for asynchronous code."""

    def __init__(self, endpoint: Endpoint, *, timeout: float, http_client: httpx.AsyncClient | None = None) -> None:
        self.endpoint = endpoint
        self._given = http_client is not None
        self._http = http_client or httpx.AsyncClient(timeout=timeouts(timeout))

    async def send(self, call: Call) -> Mapping[str, Any]:
        """Send ``call`` and return the gateway's JSON response. Raises GroundlaneError."""
        outcome, attempt = await self._try(call), 0
        while (delay := self.endpoint.delay_after(call, attempt, outcome)) is not None:
            await anyio.sleep(delay)
            outcome, attempt = await self._try(call), attempt + 1
        return _answer(self.endpoint, outcome)

    async def aclose(self) -> None:
        if not self._given:
            await self._http.aclose()

    async def _try(self, call: Call) -> httpx.Response | httpx.TransportError:
        try:
            return await self._http.request(**self.endpoint.request(call))
        except httpx.TransportError as error:
            return error


def _answer(endpoint: Endpoint, outcome: httpx.Response | httpx.TransportError) -> Mapping[str, Any]:
    if isinstance(outcome, httpx.TransportError):
        raise endpoint.unreachable(outcome) from outcome
    return endpoint.read(outcome)
