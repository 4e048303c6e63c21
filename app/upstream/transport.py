"""httpx's transport interface over aiohttp, whose parser is C: a fraction of the CPU of httpx's own transport.

It differs from ready-made ones in what a proxy cares for: the request's target goes out byte by byte as it came, the
wait for the first byte and the silence between bytes are timed apart, each failure is the httpx error that says what
happened, and closing a reply closes its connection at once.
"""

import asyncio
import urllib.request
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from functools import lru_cache
from time import monotonic
from typing import cast

import aiohttp
import httpx
from yarl import URL

from app.config import Timeouts
from app.upstream.connections import Connector

_KEEPALIVE_S = 60.0
_FIRST_STATUS, _LAST_STATUS = 200, 599
"""Of answers: what has another can be passed on to no client."""


class AiohttpTransport(httpx.AsyncBaseTransport):
    """One pool of connections. httpx's own timeouts are not looked at: ``timeouts`` stand for the pool.

    Of a request's extensions it reads ``target``: the bytes of path and query to send in place of the URL's.
    """

    def __init__(self, *, timeouts: Timeouts, connections: int = 1_000, proxy_from_env: bool = False) -> None:
        self._timeouts = timeouts
        self._head_timeout = timeouts.connect + timeouts.first_byte
        self._client_timeout = aiohttp.ClientTimeout(sock_connect=timeouts.connect, sock_read=timeouts.first_byte)
        self._connections, self._proxy_from_env = connections, proxy_from_env
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        whole = isinstance(request.stream, httpx.ByteStream)
        if not whole:
            request.headers.pop("transfer-encoding", None)  # aiohttp frames the body itself
        target = request.extensions.get("target", request.url.raw_path).decode("latin-1")
        url = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}{target}"
        content = request.content if whole else cast(AsyncIterable[bytes], request.stream)
        return await self.send(request.method, url, request.headers.multi_items(), content)

    async def send(
        self, method: str, url: str, headers: Sequence[tuple[str, str]], content: bytes | AsyncIterable[bytes]
    ) -> httpx.Response:
        """What ``handle_async_request`` does, without the types of httpx on the way out. The URL goes out as it is."""
        session = self._session or self._open()
        whole = isinstance(content, bytes)
        started = monotonic()
        try:
            # aiohttp times the silence before a head, which one that comes in byte by byte never ends.
            async with asyncio.timeout(self._head_timeout if whole else None):
                response = await session.request(
                    method,
                    _url(url),
                    headers=headers,
                    data=content or None,
                    allow_redirects=False,
                    proxy=_env_proxy(httpx.URL(url)) if self._proxy_from_env else None,
                )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _translated(error)(_message(error)) from error
        if not _FIRST_STATUS <= response.status <= _LAST_STATUS:
            response.close()
            raise httpx.RemoteProtocolError(f"status {response.status} is none of HTTP's")
        # How long an upload takes is the caller's matter.
        spent = monotonic() - started if whole else 0.0
        return httpx.Response(
            response.status,
            headers=response.raw_headers,
            stream=_Body(response, first=self._timeouts.first_byte - spent, between=self._timeouts.between_bytes),
            extensions={"http_version": b"HTTP/1.1"},
        )

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        # Made inside the running loop, on first use.
        self._session = aiohttp.ClientSession(
            connector=Connector(limit=self._connections, keepalive_timeout=_KEEPALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers={"User-Agent", "Accept", "Accept-Encoding", "Content-Type"},
            auto_decompress=False,
            timeout=self._client_timeout,
        )
        return self._session


class _Body(httpx.AsyncByteStream):
    """The reply's body. ``first``: what is left of the time for its first byte; both in seconds."""

    def __init__(self, response: aiohttp.ClientResponse, *, first: float, between: float) -> None:
        self._response, self._content = response, response.content
        self._first, self._between, self._begun = first, between, False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            if self._begun:
                data = await self._content.readany()
            else:
                self._begun = True
                self._allow(self._first)
                data = await self._content.readany()
                self._allow(self._between)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _translated(error)(_message(error)) from error
        if not data:
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        # A connection whose reply was read to its end is in the pool again by now; any other is of no more use.
        self._response.close()

    def _allow(self, seconds: float) -> None:
        """Let the upstream be silent for that long, from now on."""
        connection = self._response.connection
        if connection is not None and connection.protocol is not None:
            connection.protocol.read_timeout = max(seconds, 0.001)
            connection.protocol.start_timeout()


@lru_cache(maxsize=256)
def _url(url: str) -> URL:
    return URL(url, encoded=True)


def _env_proxy(url: httpx.URL) -> str | None:
    if urllib.request.proxy_bypass(url.host):
        return None
    return urllib.request.getproxies().get(url.scheme)


def _translated(error: Exception) -> type[httpx.RequestError]:
    """httpx's name for what happened. Only the first two are sure to have left the upstream untouched."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return httpx.ConnectTimeout
        case aiohttp.ClientConnectorError() | aiohttp.InvalidURL():
            return httpx.ConnectError
        case TimeoutError():
            return httpx.ReadTimeout
        case aiohttp.ClientResponseError():
            return httpx.RemoteProtocolError
    return httpx.ReadError


def _message(error: Exception) -> str:
    """What happened, in words that may stand in a log: without the URL's query, and without what came of a reply."""
    return "" if isinstance(error, aiohttp.ClientResponseError | aiohttp.InvalidURL) else str(error)
