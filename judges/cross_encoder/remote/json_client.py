"""JSON over HTTP, with failures in the judge's terms."""

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import httpx

from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError, JudgeUnreachableError

_MAX_ANSWER_BYTES = 8 * 1024 * 1024
_MAX_FILE_BYTES = 64 * 1024 * 1024
_CONNECT_S = 5.0
_PAUSE_S = 0.05
"""Before a request is sent again; twice as long each time."""
_LONGEST_PAUSE_S = 1.0
_BROKEN = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
"""The connection was lost, perhaps one that the server had closed while it was idle: worth one more try."""


class StatusError(JudgeError):
    """The server answered with ``status``, which is neither success nor one that means something else below."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class JsonClient:
    """Keeps connections to ``base`` open. ``timeout_s`` bounds each wait for the server; ``api_key`` is sent as a
    bearer token and stands in no message. Redirects are not followed, proxies of the environment not used.

    A request may be sent again for as long as the caller is patient, while a replica is replaced, say. Once that has
    been in vain, the next ones are not, until one succeeds: a server that is away makes nobody wait twice.
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
        self._hopeful = True

    async def aclose(self) -> None:
        await self._client.aclose()

    async def get(self, path: str) -> Any:
        """The body of an answer with success. Raises as ``post``."""
        return _parse(await self._send("GET", path), path)

    async def get_file(self, path: str) -> bytes:
        """The same, as it is, and longer than other answers may be. Raises as ``post``."""
        return await self._send("GET", path, most=_MAX_FILE_BYTES)

    async def post(
        self, path: str, body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None, patience_s: float = 0.0
    ) -> Any:
        """The body of an answer with success. Where none can be had for a reason that may pass, the request is sent
        again and again until ``patience_s`` is over.

        Raises JudgeUnreachableError when there is no answer in time or the server is not ready, JudgeOverloadedError
        for 429, JudgeUnavailableError where it refuses the key, StatusError for any other status, JudgeError for an
        answer that is no JSON or too long.
        """
        content = json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        if patience_s <= 0:
            return _parse(await self._send("POST", path, content, sent), path)
        try:
            async with asyncio.timeout(patience_s) as limit:
                answer = await self._insist(path, content, sent, limit.when() or 0.0)
        except TimeoutError:
            self._hopeful = False
            raise JudgeUnreachableError(f"{path}: no answer in time") from None
        self._hopeful = True
        return _parse(answer, path)

    async def _insist(self, path: str, content: bytes, headers: Mapping[str, str], until: float) -> bytes:
        clock, pause = asyncio.get_running_loop().time, _PAUSE_S
        while True:
            try:
                return await self._send("POST", path, content, headers)
            except JudgeUnreachableError:
                if not self._hopeful or clock() + pause >= until:
                    self._hopeful = False
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _send(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        most: int = _MAX_ANSWER_BYTES,
    ) -> bytes:
        request = self._client.build_request(method, self._base + path, content=content, headers=headers)
        try:
            status, body = await self._exchange(request, path, most)
        except _BROKEN:
            status, body = await self._again(request, path, most)
        if status == HTTPStatus.OK:
            return body
        raise _refusal(status, path)

    async def _again(self, request: httpx.Request, path: str, most: int) -> tuple[int, bytes]:
        try:
            return await self._exchange(request, path, most)
        except _BROKEN as error:
            raise JudgeUnreachableError(f"{path}: the connection broke, twice ({type(error).__name__})") from error

    async def _exchange(self, request: httpx.Request, path: str, most: int) -> tuple[int, bytes]:
        body = bytearray()
        try:
            response = await self._client.send(request, stream=True)
            try:
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > most:
                        raise JudgeError(f"{path}: the answer is longer than {most} bytes")
                return response.status_code, bytes(body)
            finally:
                await response.aclose()
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
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.REQUEST_TIMEOUT:
        return JudgeUnreachableError(f"{path}: the server is not ready ({status})")
    return StatusError(f"{path}: the server answered {status}", status)
