"""The upstream: one pooled HTTP client, and what of headers crosses the gateway.

The API is httpx's; its transport is aiohttp's through httpx-aiohttp, which takes a fraction of the CPU of httpx's own.
"""

from collections.abc import AsyncIterable, Iterable
from http.cookiejar import DefaultCookiePolicy

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from app.errors import UpstreamConnectError, UpstreamTimeoutError
from app.settings import Settings

Headers = list[tuple[str, str]]

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade"}
)  # fmt: skip
_CALLER_KEYS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})
# Set anew for each hop, or ours alone: cookies are the dashboard's, never an upstream's.
_NOT_SENT = _HOP_BY_HOP | {"host", "content-length", "accept-encoding", "cookie", "expect"}
_NOT_RETURNED = _HOP_BY_HOP | _CALLER_KEYS | {"content-length", "date", "server", "set-cookie"}


class Upstream:
    """Sends requests upstream. One per process; its pool lives as long as it does.

    With a key configured, that key is sent and every key of the caller is taken out; without one the caller's own pass.
    """

    def __init__(self, settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._base_url = str(settings.upstream_base_url).rstrip("/")
        self._key = settings.upstream_api_key.get_secret_value() if settings.upstream_api_key else None
        self._client = httpx.AsyncClient(
            transport=transport or AiohttpTransport(client=lambda: _session(settings)),
            timeout=httpx.Timeout(settings.read_timeout_s, connect=settings.connect_timeout_s),
            headers={"user-agent": "groundlane"},
            follow_redirects=False,
        )
        # The client is shared by all callers: no cookie of one may reach another.
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    async def send(
        self,
        method: str,
        path: str,
        *,
        headers: Headers,
        content: bytes | AsyncIterable[bytes],
        accept_encoding: str,
        query: str = "",
    ) -> httpx.Response:
        """Send a request and return once the response's headers are here; the caller closes the response.

        ``path`` is what follows ``/v1``. Raises UpstreamConnectError or UpstreamTimeoutError.
        """
        url = f"{self._base_url}{path}" + (f"?{query}" if query else "")
        request = self._client.build_request(
            method, url, headers=self._outgoing(headers, accept_encoding), content=content or None
        )
        try:
            return await self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise translate(error) from error

    async def aclose(self) -> None:
        await self._client.aclose()

    def _outgoing(self, headers: Headers, accept_encoding: str) -> Headers:
        dropped = _NOT_SENT | connection_tokens(headers)
        if self._key is not None:
            dropped |= _CALLER_KEYS
        kept = [
            (name, value) for name, value in headers if name not in dropped and not name.startswith("x-groundlane-")
        ]
        if self._key is not None:
            kept.append(("authorization", f"Bearer {self._key}"))
        kept.append(("accept-encoding", accept_encoding))
        return kept


def returned_headers(response: httpx.Response, *, decoded: bool) -> Headers:
    """The upstream's headers as the client may see them. ``decoded``: the body goes on without its content encoding."""
    headers = [(name.lower(), value) for name, value in response.headers.multi_items()]
    dropped = _NOT_RETURNED | connection_tokens(headers) | ({"content-encoding"} if decoded else frozenset())
    return [(name, value) for name, value in headers if name not in dropped]


def connection_tokens(headers: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The headers that ``Connection`` names as meant for this hop only (RFC 9110, section 7.6.1)."""
    return frozenset(
        token.strip().lower() for name, value in headers if name == "connection" for token in value.split(",")
    )


def translate(error: httpx.HTTPError) -> UpstreamConnectError | UpstreamTimeoutError:
    """Ours for httpx's. The message names no address and no key."""
    # httpx-aiohttp maps every lost connection to ConnectTimeout; the cause tells a timeout from a refusal.
    lost = isinstance(error.__cause__, aiohttp.ClientError) and not isinstance(error.__cause__, TimeoutError)
    if isinstance(error, httpx.TimeoutException) and not lost:
        return UpstreamTimeoutError("The upstream did not answer in time.")
    if isinstance(error, httpx.ConnectError | httpx.TimeoutException):
        return UpstreamConnectError("The upstream could not be reached.")
    return UpstreamConnectError("The connection to the upstream broke.")


def _session(settings: Settings) -> aiohttp.ClientSession:
    # Made inside the running loop, by the transport, on first use.
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=settings.upstream_connections, keepalive_timeout=60),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers={"User-Agent", "Accept", "Accept-Encoding", "Content-Type"},
    )
