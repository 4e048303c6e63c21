"""The connections to one upstream. Implements httpx's transport interface on aiohttp's connection pool, whose parser is
written in C.

This transport has features that other transports lack. The request target and headers are sent byte for byte. The time
to the first byte and the time between bytes have separate limits. Each kind of failure raises a specific httpx error,
which determines whether the request is retried. Closing a response that wasn't read completely closes its connection.
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
from app.upstream.connection_pool import ATTEMPT, Attempt, ConnectionPool
from app.upstream.environment_proxy import proxy_for

_MAX_HEADERS, _MAX_HEADER_BYTES = 256, 64 * 1024
_FIRST_STATUS, _LAST_STATUS = 200, 599
"""The statuses that can be passed on to a client."""
_NOT_IN_A_LINE = re.compile(rb"[^\x21-\x7e\x80-\xff]")
_LARGE_BODY = 1024 * 1024
"""The maximum size of a body that is passed to aiohttp as bytes. A longer body must be a file, which aiohttp sends in
pieces."""


class AiohttpTransport(httpx.AsyncBaseTransport):
    """Sends requests over at most ``connections`` connections, which are kept for later requests.

    ``timeouts`` apply to every request. httpx's timeouts are ignored. As in httpx's transport, the request extension
    ``target`` (bytes) replaces the URL's path and query. Cookies are not kept, redirects are not followed, and bodies
    are not decoded.
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
        """Send a request, and return once the response head has arrived. Raises httpx.TransportError. Cancelling the
        call closes the connection.
        """
        timeouts, loop = self._timeouts, asyncio.get_running_loop()
        started = loop.time()
        if isinstance(request.stream, httpx.ByteStream):
            response = await self._send_again_if_stale(request)
        else:
            upload = _Upload(request.stream, limit_s=timeouts.first_byte)
            response = await self._send(request, upload)
            started = upload.answered()
        if not _FIRST_STATUS <= response.status <= _LAST_STATUS:
            response.close()
            raise httpx.RemoteProtocolError(f"invalid status {response.status}")
        first_s = timeouts.first_byte - (loop.time() - started)
        if first_s <= 0:  # connecting used up the time, but has a separate limit
            first_s += timeouts.connect
        body = _Body(response, first_s=first_s, between_s=timeouts.between_bytes)
        return httpx.Response(response.status, headers=response.raw_headers, stream=body)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _send_again_if_stale(self, request: httpx.Request) -> aiohttp.ClientResponse:
        """Send a request whose body is complete. If a reused connection closes before any byte of the response arrives,
        the request is retried once on a new connection, because servers close idle connections at any time.
        """
        attempt = Attempt()
        token = ATTEMPT.set(attempt)
        try:
            return await self._send(request, _content_of(request))
        except httpx.ReadError:
            if not attempt.died_on_reuse:
                raise
            attempt.fresh = True
            return await self._send(request, _content_of(request))
        finally:
            ATTEMPT.reset(token)

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
                raise httpx.WriteTimeout("the upstream did not accept the request body in time") from None
            raise _translated(error) from error

    def _open(self) -> aiohttp.ClientSession:
        # The session is created on first use, because this must happen while the event loop is running.
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
    """A request body that is sent upstream while it is received from a source. There is no limit on the time that the
    source takes. The upstream has a time limit for reading each piece, and for responding after the last piece."""

    def __init__(self, source: object, *, limit_s: float) -> None:
        self.error: Exception | None = None
        """The exception that the source raised."""
        self.sent_at: float | None = None
        self._source, self._limit_s = cast(AsyncIterable[bytes], source), limit_s
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.Timeout | None = None

    async def read(self, deadline: asyncio.Timeout) -> AsyncIterator[bytes]:
        """Yield the pieces of the body. Each piece extends ``deadline``, until there is a response."""
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
        """End the deadline. Return the time at which the whole body had been sent, or the current time if the upstream
        responded earlier."""
        self._deadline = None
        return self._loop.time() if self.sent_at is None else self.sent_at

    def _allow(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.reschedule(None if seconds is None else self._loop.time() + seconds)


class _Body(httpx.AsyncByteStream):
    """A response body that is not decompressed. The timeout runs only while a caller waits for data."""

    def __init__(self, response: aiohttp.ClientResponse, *, first_s: float, between_s: float) -> None:
        self._response, self._first_s, self._between_s = response, first_s, between_s
        self._loop = asyncio.get_running_loop()
        self._due: float | None = None
        """The time at which the current wait for data times out. None while no caller waits."""
        self._next_check: asyncio.TimerHandle | None = None
        """The timer for the next check. A single timer is used for all waits, because creating a timer for each piece
        takes longer than reading the piece."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content, limit_s = self._response.content, self._first_s
        while not content.at_eof():
            try:
                if content.is_eof():
                    data = content.read_nowait()
                else:
                    self._due = self._loop.time() + limit_s
                    if self._next_check is None or self._next_check.when() > self._due:
                        self._check()
                    data = await content.readany()
                    self._due = None
            except (aiohttp.ClientError, TimeoutError) as error:
                # aiohttp raises the error before it returns the data received so far
                if left := content._read_nowait(-1):
                    yield left
                raise _translated(error) from error
            if data:
                yield data
            limit_s = self._between_s

    def _check(self) -> None:
        """End the wait if it has timed out. Otherwise, schedule a check for the time when it will."""
        if self._next_check is not None:
            self._next_check.cancel()
            self._next_check = None
        if self._due is None:
            return
        if self._loop.time() >= self._due:
            self._response.content.set_exception(TimeoutError())
        else:
            self._next_check = self._loop.call_at(self._due, self._check)

    async def aclose(self) -> None:
        self._due = None
        self._check()
        # If the response has been read to its end, its connection is already back in the pool, and this call has no
        # effect.
        self._response.close()


def _url_of(request: httpx.Request) -> URL:
    target = request.extensions.get("target", request.url.raw_path)
    return _url(request.url.scheme, request.url.netloc.decode("ascii"), target)


@lru_cache(maxsize=256)
def _url(scheme: str, netloc: str, target: bytes) -> URL:
    if _NOT_IN_A_LINE.search(target):
        raise ValueError("the request target contains spaces or control characters")
    try:
        text = target.decode()
    except UnicodeDecodeError:
        text = quote(target, safe=ascii_letters + digits + punctuation)
    return URL(f"{scheme}://{netloc}{text}", encoded=True)


def _headers_of(request: httpx.Request) -> list[tuple[str, str]]:
    # aiohttp sets ``Transfer-Encoding`` itself.
    return [(_text(name), _text(value)) for name, value in request.headers.raw if name.lower() != b"transfer-encoding"]


def _text(raw: bytes) -> str:
    """Return the string that aiohttp encodes, as UTF-8, to ``raw``. If ``raw`` isn't UTF-8, it is read as Latin-1, so
    different bytes are sent."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _content_of(request: httpx.Request) -> bytes | BytesIO | None:
    content = request.read()
    return BytesIO(content) if len(content) > _LARGE_BODY else content or None


def _translated(error: Exception) -> httpx.TransportError:
    """Convert an aiohttp error to an httpx error. A ConnectError or ConnectTimeout means that the upstream can't have
    seen the request. The message is for the log. It contains neither the query of the URL nor any part of a response.
    """
    match error:
        case aiohttp.ConnectionTimeoutError():
            return httpx.ConnectTimeout("could not connect to the upstream in time")
        case aiohttp.ClientHttpProxyError():
            return httpx.ProxyError(f"the proxy returned HTTP {error.status}")
        case aiohttp.ClientConnectorError() | UnicodeError():
            return httpx.ConnectError(str(error))
        case TimeoutError():
            return httpx.ReadTimeout("the upstream did not respond in time")
        case aiohttp.ClientResponseError():
            return httpx.RemoteProtocolError("the response is not valid HTTP")
        case ValueError():
            return httpx.LocalProtocolError("the request is not valid HTTP")
    cause = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
    return httpx.ReadError(f"connection lost: {cause}")
