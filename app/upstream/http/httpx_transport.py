"""Transports of httpx's own kind, sent to as ours: a stand-in for the network, and httpx's client for proxies."""

import asyncio
import ssl
import urllib.request
from collections.abc import AsyncIterable, AsyncIterator

import httpx

from app.config import Timeouts
from app.upstream.http.address import Address
from app.upstream.http.connect import trust
from app.upstream.http.response import Headers, Response
from app.upstream.http.transport import Sender


class Foreign:
    """Sends through ``transport``. Without ``timeouts`` nothing is timed."""

    def __init__(self, transport: httpx.AsyncBaseTransport, *, timeouts: Timeouts | None = None) -> None:
        self._transport, self._timeouts = transport, timeouts

    async def send(
        self, method: str, address: Address, headers: Headers, content: bytes | AsyncIterable[bytes]
    ) -> Response:
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        request = httpx.Request(method, address.url, headers=raw, content=content or None)
        request.url = _Exact(address)
        timeouts = self._timeouts
        if timeouts is None:
            return ForeignResponse(await self._transport.handle_async_request(request))
        head_s = timeouts.connect + timeouts.first_byte
        request.extensions["timeout"] = {"connect": timeouts.connect, "write": timeouts.first_byte, "pool": head_s}
        loop = asyncio.get_running_loop()
        started = loop.time()
        whole = isinstance(content, bytes)  # how long an upload takes is the caller's matter
        try:
            async with asyncio.timeout(head_s if whole else None):
                response = await self._transport.handle_async_request(request)
        except TimeoutError:
            raise httpx.ReadTimeout("the upstream was silent for too long") from None
        spent = loop.time() - started if whole else 0.0
        return ForeignResponse(
            response, first_s=max(timeouts.first_byte - spent, 0.0), between_s=timeouts.between_bytes
        )

    async def aclose(self) -> None:
        await self._transport.aclose()


class Proxied:
    """Through the proxies of the environment, or ``direct`` where it names none for an address."""

    def __init__(
        self, direct: Sender, *, timeouts: Timeouts, connections: int = 1_000, tls: ssl.SSLContext | None = None
    ) -> None:
        self._direct, self._timeouts, self._connections = direct, timeouts, connections
        self._tls = tls or trust()
        self._through: dict[str, Foreign] = {}

    async def send(
        self, method: str, address: Address, headers: Headers, content: bytes | AsyncIterable[bytes]
    ) -> Response:
        proxy = _proxy_of(address.url)
        sender = self._direct if proxy is None else self._through.get(proxy) or self._open(proxy)
        return await sender.send(method, address, headers, content)

    async def aclose(self) -> None:
        for sender in (self._direct, *self._through.values()):
            await sender.aclose()

    def _open(self, proxy: str) -> Foreign:
        limits = httpx.Limits(max_connections=self._connections, keepalive_expiry=60.0)
        try:
            transport = httpx.AsyncHTTPTransport(verify=self._tls, limits=limits, proxy=proxy)
        except (ImportError, ValueError, httpx.InvalidURL):
            raise httpx.ConnectError("the proxy of the environment is of no kind that is known") from None
        self._through[proxy] = Foreign(transport, timeouts=self._timeouts)
        return self._through[proxy]


class ForeignResponse(Response):
    """A response of httpx's read as ours. ``first_s`` is for the body's first byte, ``between_s`` for each after it."""

    __slots__ = ("_between_s", "_response", "_source", "_wait_s", "headers", "status_code")

    def __init__(
        self, response: httpx.Response, *, first_s: float | None = None, between_s: float | None = None
    ) -> None:
        self.status_code = response.status_code
        self.headers = [
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.headers.raw
        ]
        self._response, self._wait_s, self._between_s = response, first_s, between_s
        stream = response.stream
        self._source: AsyncIterator[bytes] = aiter(
            stream if isinstance(stream, httpx.AsyncByteStream) else response.aiter_raw()
        )

    async def read(self) -> bytes:
        data: bytes | None = b""
        while data == b"":
            try:
                async with asyncio.timeout(self._wait_s):
                    data = await anext(self._source, None)
            except TimeoutError:
                raise httpx.ReadTimeout("the upstream was silent for too long") from None
        self._wait_s = self._between_s
        return data or b""

    async def aclose(self) -> None:
        await self._response.aclose()


class _Exact(httpx.URL):
    """A URL whose path and query are the bytes that came."""

    def __init__(self, address: Address) -> None:
        super().__init__(address.url)
        self._target = address.target.encode("latin-1")

    @property
    def raw_path(self) -> bytes:
        return self._target


def _proxy_of(url: httpx.URL) -> str | None:
    if urllib.request.proxy_bypass(url.host):
        return None
    return urllib.request.getproxies().get(url.scheme)
