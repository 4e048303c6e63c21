"""Selects the headers that are forwarded, and the header that contains the key for each kind of upstream."""

import re
from collections.abc import Mapping

import httpx

from app.settings import UpstreamApi

Headers = list[tuple[str, str]]
"""Pairs of a lower-case name and a value. Each character represents one byte (latin-1)."""

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade"}
)  # fmt: skip
CALLER_KEYS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})
# These headers are for a single hop, or only for the gateway. Cookies belong to the dashboard.
_NOT_SENT = _HOP_BY_HOP | {"host", "content-length", "accept-encoding", "cookie", "expect"} | {
    # Some servers take the path, host or method from these headers. The gateway hasn't checked those values.
    "x-original-url", "x-original-uri", "x-rewrite-url", "x-forwarded-uri", "x-forwarded-path", "x-forwarded-prefix",
    "x-forwarded-host", "x-original-host", "x-override-url", "x-real-url", "x-envoy-original-path",
    "x-http-path-override", "x-accel-redirect", "x-http-method", "x-http-method-override", "x-method-override",
    # All callers share the upstream's account, and one call can become several upstream requests. An upstream would
    # treat different requests with the same idempotency key as repetitions of one.
    "idempotency-key", "x-idempotency-key", "repeatability-request-id", "repeatability-first-sent",
}  # fmt: skip
_RETURNED = frozenset(
    {"content-type", "request-id", "x-request-id", "apim-request-id", "x-ms-request-id", "retry-after",
     "retry-after-ms"}
)  # fmt: skip
_RETURNED_PREFIXES = ("x-ratelimit-", "openai-", "anthropic-")
_PARTS = frozenset(
    {"claim", "day", "dynamic", "fallback", "fast", "hour", "id", "images", "input", "limit", "minute", "model",
     "month", "ms", "organization", "output", "overage", "percentage", "period", "policy", "priority",
     "processing", "project", "ratelimit", "remaining", "renewalperiod", "representative", "req", "request",
     "requests", "reset", "rpd", "rpm", "second", "status", "tier", "time", "tokens", "tpd", "tpm", "unified",
     "usage", "used", "utilization", "version", "week", "5h", "7d"}
)  # fmt: skip
"""The words that may follow these prefixes. Other words are rejected, because the name of a header could contain a
message."""
_VALUE = re.compile(
    r"""[\w.:@/+=%~-]*                                                         # an id, a number, a duration, a time
    |[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+(?:\s*;\s*[A-Za-z0-9-]+="?[\w.:/+-]+"?)*   # a media type
    |\d+(?:,\s*\d+;w=\d+)+                                                     # a rate limit and its windows
    |(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),\ \d\d\ [A-Z][a-z]{2}\ \d{4}\ [\d:]{8}\ GMT""",
    re.ASCII | re.VERBOSE,
)
"""Matches the values that are returned. Sentences don't match, so a value can't contain a message."""
_RETURNED_UNREAD = _RETURNED | {
    # A client needs these headers to read a body that the gateway forwards unchanged, such as a file, an image or
    # audio.
    "content-encoding", "content-disposition", "content-range", "accept-ranges", "etag", "last-modified",
    "cache-control", "location",
}  # fmt: skip
_HARMLESS: Headers = [
    ("content-security-policy", "sandbox; default-src 'none'; frame-ancestors 'none'"),
    ("x-content-type-options", "nosniff"),
]
"""Headers that protect the dashboard. The response of an upstream may be a web page, such as an uploaded file. In a
browser, it must not run on the dashboard's origin."""

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
"""Headers that are sent unless the caller or the configuration sets them."""


def key_header(api: UpstreamApi, key: str) -> tuple[str, str]:
    """Return the header that contains the key."""
    name, scheme = _KEY[api]
    return name, scheme + key


class OutgoingHeaders:
    """Builds the headers for one upstream. ``own`` includes its key, and takes precedence over the caller's headers."""

    def __init__(self, own: Mapping[str, str], api: UpstreamApi) -> None:
        self._own = list(own.items())
        self._defaults = [default for default in _DEFAULTS[api] if default[0] not in own]
        self._dropped = {True: _NOT_SENT | own.keys(), False: _NOT_SENT | own.keys() | CALLER_KEYS}

    def of(self, headers: Headers, *, accept_encoding: str, with_keys: bool) -> Headers:
        """Return the headers to send upstream. They include the caller's headers, except those that must not be
        forwarded. The caller's keys are included only if ``with_keys`` is set."""
        dropped = self._dropped[with_keys] | _named_by_connection(headers)
        kept = [item for item in headers if item[0] not in dropped and not item[0].startswith("x-groundlane-")]
        names = [name for name, _ in kept]
        kept += self._own
        kept += [default for default in self._defaults if default[0] not in names]
        kept.append(("accept-encoding", accept_encoding))
        return kept


def returned_headers(response: httpx.Response, *, read: bool) -> Headers:
    """Return the upstream's headers for the client. A header can contain text, so only known headers are returned, and
    only if the value is an id, a number, a time or a media type.

    ``read`` means that the gateway reads the body. Otherwise, the body is forwarded unchanged, so headers that describe
    it are returned too, with any value.
    """
    headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.headers.raw]
    names = _RETURNED if read else _RETURNED_UNREAD
    named = [item for item in headers if item[0] in names or _has_known_parts(item[0])]
    named = [item for item in named if not read or _VALUE.fullmatch(item[1])]
    hop = _named_by_connection(headers)
    return [*(item for item in named if item[0] not in hop), *_HARMLESS]


def _has_known_parts(name: str) -> bool:
    return name.startswith(_RETURNED_PREFIXES) and any(
        name.startswith(prefix) and _PARTS.issuperset(name.removeprefix(prefix).split("-"))
        for prefix in _RETURNED_PREFIXES
    )


def _named_by_connection(headers: Headers) -> frozenset[str]:
    """Return the headers that ``Connection`` names. They are for one hop only (RFC 9110, section 7.6.1)."""
    values = [value for name, value in headers if name == "connection"]
    return frozenset([token.strip().lower() for value in values for token in value.split(",")])
