"""An HTTP client for JSON that raises the judges' exceptions."""

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import httpx

from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError, JudgeUnreachableError

_MAX_RESPONSE_BYTES = 2 * 1024 * 1024
_MAX_FILE_BYTES = 64 * 1024 * 1024
_CONNECT_S = 5.0
_FIRST_BACKOFF_S = 0.05
"""Pause before the first retry; it doubles each time."""
_MAX_BACKOFF_S = 1.0
_BROKEN = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
"""Errors for a lost connection. They are worth one retry, because the server may have closed an idle connection."""


class StatusError(JudgeError):
    """The server returned an error ``status`` for which there is no more specific exception."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class JsonClient:
    """A connection pool to one server. Redirects are not followed, and proxies set in the environment are not used.

    ``post`` can retry for as long as the caller allows, for instance while a replica is being replaced. Once retries
    have failed, later requests are not retried until one succeeds, so only one caller waits for a server that is down.

    Args:
        base: the server's base URL.
        api_key: sent as a bearer token. It never appears in a message.
        timeout_s: time limit each time the client waits for the server.
        connections: maximum number of connections.
        transport: replaces the network in tests.
    """

    def __init__(
        self,
        base: str,
        *,
        api_key: str | None,
        timeout_s: float,
        connections: int,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._base = base
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            transport=transport,
            trust_env=False,
        )
        self._may_retry = True

    async def aclose(self) -> None:
        await self._client.aclose()

    async def get(self, path: str) -> Any:
        """Return the JSON body of a successful response. Raises the errors of ``post``."""
        return _parse(await self._send("GET", path), path)

    async def get_file(self, path: str) -> bytes:
        """Return the raw body of a successful response, up to 64 MiB. Raises the errors of ``post``."""
        return await self._send("GET", path, max_bytes=_MAX_FILE_BYTES)

    async def post(
        self, path: str, body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None, retry_s: float = 0.0
    ) -> Any:
        """Return the JSON body of a successful response. Temporary failures are retried for up to ``retry_s`` seconds.

        Raises JudgeUnreachableError if there is no response in time or the server is not ready, JudgeOverloadedError
        for 429, JudgeUnavailableError if the key is rejected, StatusError for any other status, and JudgeError for a
        response that is not JSON or too long.
        """
        content = json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        if retry_s <= 0:
            return _parse(await self._send("POST", path, content, sent), path)
        try:
            async with asyncio.timeout(retry_s) as limit:
                answer = await self._post_with_retries(path, content, sent, limit.when() or 0.0)
        except TimeoutError:
            self._may_retry = False
            raise JudgeUnreachableError(f"{path}: the server did not respond in time") from None
        self._may_retry = True
        return _parse(answer, path)

    async def _post_with_retries(self, path: str, content: bytes, headers: Mapping[str, str], until: float) -> bytes:
        clock, backoff = asyncio.get_running_loop().time, _FIRST_BACKOFF_S
        while True:
            try:
                return await self._send("POST", path, content, headers)
            except JudgeUnreachableError:
                if not self._may_retry or clock() + backoff >= until:
                    self._may_retry = False
                    raise
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, _MAX_BACKOFF_S)

    async def _send(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = _MAX_RESPONSE_BYTES,
    ) -> bytes:
        request = self._client.build_request(method, self._base + path, content=content, headers=headers)
        try:
            status, body = await self._exchange(request, path, max_bytes)
        except _BROKEN:
            status, body = await self._send_again(request, path, max_bytes)
        if status == HTTPStatus.OK:
            return body
        raise _refusal(status, path)

    async def _send_again(self, request: httpx.Request, path: str, max_bytes: int) -> tuple[int, bytes]:
        try:
            return await self._exchange(request, path, max_bytes)
        except _BROKEN as error:
            raise JudgeUnreachableError(f"{path}: lost the connection twice ({type(error).__name__})") from error

    async def _exchange(self, request: httpx.Request, path: str, max_bytes: int) -> tuple[int, bytes]:
        body = bytearray()
        try:
            response = await self._client.send(request, stream=True)
            try:
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > max_bytes:
                        raise JudgeError(f"{path}: response longer than {max_bytes} bytes")
                return response.status_code, bytes(body)
            finally:
                await response.aclose()
        except _BROKEN:
            raise
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise JudgeUnreachableError(f"cannot connect to {self._base} ({type(error).__name__})") from error
        except httpx.TimeoutException as error:
            raise JudgeUnreachableError(
                f"{path}: the server did not respond in time ({type(error).__name__})"
            ) from error
        except httpx.HTTPError as error:
            raise JudgeError(f"{path}: {type(error).__name__}") from error


def _parse(body: bytes, path: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise JudgeError(f"{path}: response is not JSON") from error


def _refusal(status: int, path: str) -> JudgeError:
    # The response body is left out, because it may repeat texts from the request, and messages are logged.
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return JudgeUnavailableError(f"{path}: API key rejected ({status}); check GROUNDLANE_JUDGE_API_KEY")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return JudgeOverloadedError(f"{path}: the server is overloaded (429)")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.REQUEST_TIMEOUT:
        return JudgeUnreachableError(f"{path}: the server is not ready ({status})")
    return StatusError(f"{path}: the server returned {status}", status)
