"""The connections to one upstream: httpx's transport interface over aiohttp's pool, whose parser is written in C.

Ready-made transports lack what a gateway needs. Here the request's target and headers go out byte for byte, the time to
the first byte and the silence between bytes have limits of their own, each failure is the httpx error that says what
happened (retries depend on it), and closing a response that has not been read to its end closes its connection.
"""

import asyncio
import os
import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator
from functools import lru_cache
from io import BytesIO
from string import ascii_letters, digits, punctuation
from typing import cast
from urllib.parse import quote

import aiohttp
import httpx
from yarl import URL

from app.config import Timeouts
from app.upstream.connection_pool import ConnectionPool
from app.upstream.environment_proxy import proxy_for

_MAX_HEADERS, _MAX_HEADER_BYTES = 256, 64 * 1024
_FIRST_STATUS, _LAST_STATUS = 200, 599
"""A response with another status cannot be passed on to a client."""
_NOT_IN_A_LINE = re.compile(rb"[^\x21-\x7e\x80-\xff]")
_LARGE_BODY = 1024 * 1024
"""aiohttp wants a longer body as a file, which it sends piece by piece."""


class AiohttpTransport(httpx.AsyncBaseTransport):
    """Sends requests over at most ``connections`` connections, which are kept for later requests.

    ``timeouts`` apply to every request; httpx's own are ignored. As in httpx's transport, the request extension
    ``target`` (bytes) replaces the URL's path and query. No cookies are kept, no redirects followed, no bodies decoded.
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts,
        connections: int = 1_000,
        proxy_from_env: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._timeouts = timeouts
        self._connections, self._proxy_from_env, self._tls = connections, proxy_from_env, tls
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return once the response's head is here. Raises httpx.TransportError; cancelling it closes the connection."""
        timeouts, loop = self._timeouts, asyncio.get_running_loop()
        started = loop.time()
        if isinstance(request.stream, httpx.ByteStream):
            response = await self._send(request, _content_of(request))
        else:
            upload = _Upload(request.stream, limit_s=timeouts.first_byte)
            response = await self._send(request, upload)
            started = upload.answered()
        if not _FIRST_STATUS <= response.status <= _LAST_STATUS:
            response.close()
            raise httpx.RemoteProtocolError(f"invalid status {response.status}")
        first_s = timeouts.first_byte - (loop.time() - started)
        if first_s <= 0:  # the rest went into connecting, which has a limit of its own
            first_s += timeouts.connect
        body = _Body(response, first_s=first_s, between_s=timeouts.between_bytes)
        return httpx.Response(response.status, headers=response.raw_headers, stream=body)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _send(
        self, request: httpx.Request, content: "bytes | BytesIO | _Upload | None"
    ) -> aiohttp.ClientResponse:
        session = self._session or self._open()
        proxy = proxy_for(request.url) if self._proxy_from_env else None
        upload = content if isinstance(content, _Upload) else None
        try:
            async with asyncio.timeout(self._timeouts.connect + self._timeouts.first_byte) as deadline:
                return await session.request(
                    request.method,
                    _url_of(request),
                    headers=_headers_of(request),
                    data=content if upload is None else upload.read(deadline),
                    allow_redirects=False,
                    proxy=proxy,
                )
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            if upload is not None and upload.error is not None:
                raise upload.error from None
            if isinstance(error, TimeoutError) and upload is not None and upload.sent_at is None:
                raise httpx.WriteTimeout("the upstream did not read the request in time") from None
            raise _translated(error) from error

    def _open(self) -> aiohttp.ClientSession:
        # Made inside the running loop, on first use.
        self._session = aiohttp.ClientSession(
            connector=ConnectionPool(limit=self._connections, tls=self._tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers={"User-Agent", "Accept", "Accept-Encoding", "Content-Type"},
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeouts.connect),
            max_headers=_MAX_HEADERS,
            max_field_size=_MAX_HEADER_BYTES,
        )
        return self._session


class _Upload:
    """A request body that is sent while it is received. The time that its source takes is not limited, only the time
    that the upstream takes to read a piece, and to answer after the last."""

    def __init__(self, source: object, *, limit_s: float) -> None:
        self.error: Exception | None = None
        """What the source raised."""
        self.sent_at: float | None = None
        self._source, self._limit_s = cast(AsyncIterable[bytes], source), limit_s
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.Timeout | None = None

    async def read(self, deadline: asyncio.Timeout) -> AsyncIterator[bytes]:
        """The pieces. ``deadline`` is moved along with them, until there is an answer."""
        self._deadline = deadline
        try:
            self._allow(None)
            async for piece in self._source:
                self._allow(self._limit_s)
                yield piece
                self._allow(None)
        except Exception as error:
            self.error = error
            raise
        self.sent_at = self._loop.time()
        self._allow(self._limit_s)

    def answered(self) -> float:
        """End the deadline. Returns when all was sent; now, if the upstream has answered before."""
        self._deadline = None
        return self._loop.time() if self.sent_at is None else self.sent_at

    def _allow(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.reschedule(None if seconds is None else self._loop.time() + seconds)


class _Body(httpx.AsyncByteStream):
    """A response body as it was sent. Time counts only while somebody waits for a byte."""

    def __init__(self, response: aiohttp.ClientResponse, *, first_s: float, between_s: float) -> None:
        self._response, self._first_s, self._between_s = response, first_s, between_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content, limit_s = self._response.content, self._first_s
        while not content.at_eof():
            try:
                if content.is_eof():
                    data = content.read_nowait()
                else:
                    async with asyncio.timeout(limit_s):
                        data = await content.readany()
            except (aiohttp.ClientError, TimeoutError) as error:
                if left := content._read_nowait(-1):  # aiohttp raises before it gives out what came until then
                    yield left
                raise _translated(error) from error
            if data:
                yield data
            limit_s = self._between_s

    async def aclose(self) -> None:
        # The connection of a response that was read to its end is back in the pool already.
        self._response.close()


def _url_of(request: httpx.Request) -> URL:
    target = request.extensions.get("target", request.url.raw_path)
    return _url(request.url.scheme, request.url.netloc.decode("ascii"), target)


@lru_cache(maxsize=256)
def _url(scheme: str, netloc: str, target: bytes) -> URL:
    if _NOT_IN_A_LINE.search(target):
        raise ValueError("a target with spaces or control characters")
    try:
        text = target.decode()
    except UnicodeDecodeError:
        text = quote(target, safe=ascii_letters + digits + punctuation)
    return URL(f"{scheme}://{netloc}{text}", encoded=True)


def _headers_of(request: httpx.Request) -> list[tuple[str, str]]:
    # aiohttp frames the body itself.
    return [(_text(name), _text(value)) for name, value in request.headers.raw if name.lower() != b"transfer-encoding"]


def _text(raw: bytes) -> str:
    """What becomes ``raw`` again when aiohttp writes it as UTF-8. Other bytes are Latin-1, and are sent as UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _content_of(request: httpx.Request) -> bytes | BytesIO | None:
    content = request.read()
    return BytesIO(content) if len(content) > _LARGE_BODY else content or None


def _translated(error: Exception) -> httpx.TransportError:
    """httpx's error for aiohttp's. After a ConnectError or ConnectTimeout the upstream cannot have seen the request.

    The message is for the log: it contains neither the URL's query nor anything of a response.
    """
    match error:
        case aiohttp.ConnectionTimeoutError():
            return httpx.ConnectTimeout("no connection in time")
        case aiohttp.ClientHttpProxyError():
            return httpx.ProxyError(f"the proxy answered {error.status}")
        case aiohttp.ClientConnectorError() | UnicodeError():
            return httpx.ConnectError(str(error))
        case TimeoutError():
            return httpx.ReadTimeout("no answer in time")
        case aiohttp.ClientResponseError():
            return httpx.RemoteProtocolError("the response is not valid HTTP")
        case ValueError():
            return httpx.LocalProtocolError("the request is not valid HTTP")
    cause = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
    return httpx.ReadError(f"connection lost: {cause}")
