"""Which headers are forwarded, and in which header each kind of upstream gets its key."""

from collections.abc import Mapping

import httpx

from app.settings import UpstreamApi
from app.upstream.request import Headers

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade"}
)  # fmt: skip
CALLER_KEYS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})
# Set for each hop, or only for the gateway: cookies belong to the dashboard.
_NOT_SENT = _HOP_BY_HOP | {"host", "content-length", "accept-encoding", "cookie", "expect"} | {
    # Some servers take another path or method from these, which the gateway hasn't checked.
    "x-original-url", "x-original-uri", "x-rewrite-url", "x-forwarded-uri", "x-forwarded-path", "x-forwarded-prefix",
    "x-http-method", "x-http-method-override", "x-method-override",
}  # fmt: skip
_RETURNED = frozenset(
    {"content-type", "request-id", "x-request-id", "apim-request-id", "x-ms-request-id", "retry-after",
     "retry-after-ms"}
)  # fmt: skip
_RETURNED_PREFIXES = ("x-ratelimit-", "openai-", "anthropic-")
_RETURNED_UNREAD = _RETURNED | {
    # A client needs them to read a body that the gateway forwards as it is: a file, an image, audio.
    "content-encoding", "content-disposition", "content-range", "accept-ranges", "etag", "last-modified",
    "cache-control", "location",
}  # fmt: skip
_HARMLESS: Headers = [
    ("content-security-policy", "sandbox; default-src 'none'; frame-ancestors 'none'"),
    ("x-content-type-options", "nosniff"),
]
"""An upstream's response may be a web page (a file that somebody uploaded there). In a browser, it must not run on the
dashboard's origin."""

_KEY = {
    UpstreamApi.OPENAI: ("authorization", "Bearer "),
    UpstreamApi.AZURE: ("api-key", ""),
    UpstreamApi.ANTHROPIC: ("x-api-key", ""),
}
_OURS = ("user-agent", "groundlane")
_DEFAULTS: Mapping[UpstreamApi, Headers] = {
    UpstreamApi.OPENAI: [_OURS],
    UpstreamApi.AZURE: [_OURS],
    UpstreamApi.ANTHROPIC: [_OURS, ("anthropic-version", "2023-06-01")],
}
"""Sent unless the caller or the configuration sets them."""


def key_header(api: UpstreamApi, key: str) -> tuple[str, str]:
    """The header that carries the key."""
    name, scheme = _KEY[api]
    return name, scheme + key


class OutgoingHeaders:
    """The headers for one upstream. ``own``, which include its key, replace a caller's."""

    def __init__(self, own: Mapping[str, str], api: UpstreamApi) -> None:
        self._own = list(own.items())
        self._defaults = [default for default in _DEFAULTS[api] if default[0] not in own]
        self._dropped = {True: _NOT_SENT | own.keys(), False: _NOT_SENT | own.keys() | CALLER_KEYS}

    def of(self, headers: Headers, *, accept_encoding: str, with_keys: bool) -> Headers:
        """The headers to send for a caller's. ``with_keys``: its keys are forwarded; they aren't otherwise."""
        kept = _without(headers, self._dropped[with_keys])
        kept = [item for item in kept if not item[0].startswith("x-groundlane-")]
        names = [name for name, _ in kept]
        kept += self._own
        kept += [default for default in self._defaults if default[0] not in names]
        kept.append(("accept-encoding", accept_encoding))
        return kept


def returned_headers(response: httpx.Response, *, read: bool) -> Headers:
    """The upstream's headers for the client: only known ones, because a header can contain text too.

    ``read``: the gateway reads the body. Otherwise the body is forwarded as it is, with the headers that describe it.
    """
    headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.headers.raw]
    names = _RETURNED if read else _RETURNED_UNREAD
    named = [item for item in headers if item[0] in names or item[0].startswith(_RETURNED_PREFIXES)]
    hop = _named_by_connection(headers)
    return [*(item for item in named if item[0] not in hop), *_HARMLESS]


def _without(headers: Headers, dropped: frozenset[str]) -> Headers:
    """The headers without ``dropped``, and without those for this hop only."""
    hop = _named_by_connection(headers)
    return [item for item in headers if item[0] not in dropped and item[0] not in hop]


def _named_by_connection(headers: Headers) -> frozenset[str]:
    """The headers that ``Connection`` names, which are for one hop only (RFC 9110, section 7.6.1)."""
    values = [value for name, value in headers if name == "connection"]
    return frozenset(token.strip().lower() for value in values for token in value.split(","))
