"""JSON over HTTP, with failures in the judge's terms."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import httpx

from judges.base import JudgeError, JudgeOverloadedError, JudgeUnavailableError, JudgeUnreachableError

_MAX_ANSWER_BYTES = 8 * 1024 * 1024
_CONNECT_S = 5.0
_BROKEN = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
"""The connection was lost, perhaps one that the server had closed while it was idle: worth one more try."""


class StatusError(JudgeError):
    """The server answered with ``status``, which is neither success nor one that means something else below."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class JsonClient:
    """Keeps connections to ``base`` open. ``timeout_s`` bounds each wait for the server; ``api_key`` is sent as a
    bearer token and stands in no message. Redirects are not followed, proxies of the environment not used."""

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

    async def aclose(self) -> None:
        await self._client.aclose()

    async def get(self, path: str) -> Any:
        """The body of an answer with success. Raises as ``post``."""
        return await self._send("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The body of an answer with success.

        Raises JudgeUnreachableError when there is no answer in time or the server is not ready, JudgeOverloadedError
        for 429, JudgeUnavailableError where it refuses the key, StatusError for any other status, JudgeError for an
        answer that is no JSON or too long.
        """
        return await self._send("POST", path, json.dumps(body).encode())

    async def _send(self, method: str, path: str, content: bytes | None) -> Any:
        try:
            status, body = await self._exchange(method, path, content)
        except _BROKEN:
            status, body = await self._again(method, path, content)
        if status == HTTPStatus.OK:
            return _parse(body, path)
        raise _refusal(status, path)

    async def _again(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        try:
            return await self._exchange(method, path, content)
        except _BROKEN as error:
            raise JudgeUnreachableError(f"{path}: the connection broke, twice ({type(error).__name__})") from error

    async def _exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"} if content is not None else None
        body = bytearray()
        try:
            async with self._client.stream(method, self._base + path, content=content, headers=headers) as response:
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > _MAX_ANSWER_BYTES:
                        raise JudgeError(f"{path}: the answer is longer than {_MAX_ANSWER_BYTES} bytes")
                return response.status_code, bytes(body)
        except _BROKEN:
            raise
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise JudgeUnreachableError(f"cannot connect to {self._base} ({type(error).__name__})") from error
        except httpx.TimeoutException as error:
            raise JudgeUnreachableError(f"{path}: no answer in time ({type(error).__name__})") from error
        except httpx.HTTPError as error:
            raise JudgeError(f"{path}: {type(error).__name__}") from error


def _parse(body: bytes, path: str) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise JudgeError(f"{path}: the answer is no JSON") from error


def _refusal(status: int, path: str) -> JudgeError:
    # What the server says besides may repeat the texts that it was sent, and messages end in the log.
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return JudgeUnavailableError(f"{path}: the key was refused ({status}); see GROUNDLANE_JUDGE_API_KEY")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return JudgeOverloadedError(f"{path}: the server has too much to do (429)")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return JudgeUnreachableError(f"{path}: the server is not ready ({status})")
    return StatusError(f"{path}: the server answered {status}", status)
