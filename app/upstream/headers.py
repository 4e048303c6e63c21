"""What of headers crosses the gateway, and how each kind of upstream is given its key."""

from collections.abc import Iterable, Mapping

from app.settings import UpstreamApi
from app.upstream.response import Headers, Response

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade"}
)  # fmt: skip
CALLER_KEYS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})
# Set anew for each hop, or ours alone: cookies are the dashboard's, never an upstream's.
_NOT_SENT = _HOP_BY_HOP | {"host", "content-length", "accept-encoding", "cookie", "expect"}
_NOT_RETURNED = _HOP_BY_HOP | CALLER_KEYS | {"content-length", "date", "server", "set-cookie"}
_HARMLESS: Headers = [
    ("content-security-policy", "sandbox; default-src 'none'; frame-ancestors 'none'"),
    ("x-content-type-options", "nosniff"),
]
"""What an upstream says may be a page (a file that somebody uploaded there). Opened in a browser it must not act as one
of ours, beside the dashboard."""
_REPLACED = _NOT_RETURNED | dict(_HARMLESS).keys()

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
"""What is sent where neither the caller nor the configuration says otherwise."""


def key_header(api: UpstreamApi, key: str) -> tuple[str, str]:
    """The header that carries the key."""
    name, scheme = _KEY[api]
    return name, scheme + key


def sent_headers(
    headers: Headers, *, own: Mapping[str, str], api: UpstreamApi, accept_encoding: str, with_keys: bool
) -> Headers:
    """The caller's headers as the upstream gets them. ``own``, its key among them, stand in place of the caller's.

    ``with_keys``: the keys of the caller go along; otherwise every one is taken out.
    """
    dropped = _NOT_SENT | connection_tokens(headers) | own.keys()
    if not with_keys:
        dropped |= CALLER_KEYS
    kept = [(name, value) for name, value in headers if name not in dropped and not name.startswith("x-groundlane-")]
    kept.extend(own.items())
    present = {name for name, _ in kept}
    kept.extend(default for default in _DEFAULTS[api] if default[0] not in present)
    kept.append(("accept-encoding", accept_encoding))
    return kept


def returned_headers(response: Response, *, decoded: bool) -> Headers:
    """The upstream's headers as the client may see them. ``decoded``: the body goes on without its content encoding."""
    headers = response.headers
    dropped = _REPLACED | connection_tokens(headers) | ({"content-encoding"} if decoded else frozenset())
    return [*((name, value) for name, value in headers if name not in dropped), *_HARMLESS]


def connection_tokens(headers: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The headers that ``Connection`` names as meant for this hop only (RFC 9110, section 7.6.1)."""
    return frozenset(
        token.strip().lower() for name, value in headers if name == "connection" for token in value.split(",")
    )
