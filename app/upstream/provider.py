"""One upstream: its connections, key, URLs and health."""

from base64 import b64encode
from collections.abc import AsyncIterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import structlog

from app.config import UpstreamSpec
from app.errors import UpstreamKeyError
from app.upstream.headers import OutgoingHeaders, key_header
from app.upstream.key_source import KeySource
from app.upstream.request import BodyFormat, Headers, UpstreamRequest
from app.upstream.request_url import by_deployment, parsed, url_of
from app.upstream.retry import AttemptResult, result_of_error, result_of_response
from app.upstream.transport import AiohttpTransport

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class UpstreamHealth:
    """The attempts of this process since it started."""

    attempts: int = 0
    failures: int = 0
    failures_in_a_row: int = 0
    last_failure: str | None = None
    last_failure_at: datetime | None = None
    last_success_at: datetime | None = None

    def note(self, kind: str | None) -> None:
        self.attempts += 1
        if kind is None:
            self.failures_in_a_row = 0
            self.last_success_at = datetime.now(UTC)
        else:
            self.failures += 1
            self.failures_in_a_row += 1
            self.last_failure, self.last_failure_at = kind, datetime.now(UTC)


class Provider:
    """Sends requests to one upstream, over connections of its own.

    If a key is configured, it replaces the caller's keys; otherwise they are forwarded.
    """

    def __init__(
        self, spec: UpstreamSpec, *, keys: KeySource, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.spec = spec
        self.health = UpstreamHealth()
        self.by_deployment = by_deployment(spec)
        self._own = {**_basic_auth(spec.base_url), **{name: _on_the_wire(text) for name, text in spec.headers.items()}}
        if spec.key is not None:
            name, value = key_header(spec.api, spec.key.get_secret_value())
            self._own[name] = value
        self._outgoing = OutgoingHeaders(self._own, spec.api)
        self._keys = keys
        self._key: str | None = None
        self._has_key = spec.secret is not None or bool({"authorization", "x-api-key", "api-key"} & self._own.keys())
        self._transport = transport or _transport_of(spec)

    async def attempt(self, request: UpstreamRequest, body_format: BodyFormat, *, with_keys: bool) -> AttemptResult:
        """Send once. The result's response is open; the caller closes it."""
        spec = self.spec
        headers = self._headers().of(
            request.headers, accept_encoding=request.accept_encoding, with_keys=with_keys and not self._has_key
        )
        url, target = parsed(url_of(spec, request.path, request.query, body_format.model))
        content = request.content(body_format) if callable(request.content) else request.content
        try:
            # Not through httpx.AsyncClient: a gateway must not add cookies, redirects or credentials of its own.
            response = await self._transport.handle_async_request(
                _httpx_request(request.method, url, headers, content, target)
            )
        except httpx.HTTPError as error:
            repeatable = request.repeatable and request.replayable
            result = result_of_error(error, replayable=request.replayable, repeatable=repeatable)
        else:
            result = result_of_response(
                response,
                repeatable=request.repeatable and request.replayable,
                retry_429=spec.retry_429,
                max_retry_after=spec.max_retry_after,
            )
        self.health.note(result.kind)
        return result

    def _headers(self) -> OutgoingHeaders:
        """The headers with the key. A secret is looked up each time, because it may change."""
        spec = self.spec
        if spec.secret is None:
            return self._outgoing
        key = self._keys.key(spec.secret)
        if key is None:
            _log.error("upstream_key_missing", upstream=spec.name, name=spec.secret)
            raise UpstreamKeyError(f"No API key for upstream {spec.name!r}: the secret {spec.secret!r} does not exist.")
        if key != self._key:
            name, value = key_header(spec.api, key)
            self._key, self._outgoing = key, OutgoingHeaders({**self._own, name: value}, spec.api)
        return self._outgoing

    def describe(self) -> dict[str, Any]:
        """What operators may see: no key, and no headers, since one may be a secret."""
        spec, health = self.spec, self.health
        url = httpx.URL(spec.base_url)
        return {
            "name": spec.name,
            "api": spec.api.value,
            "base_url": str(url.copy_with(userinfo=b"")),
            "models": list(spec.models),
            "alias": dict(spec.alias),
            "fallback": list(spec.fallback),
            "retries": spec.retries,
            "accepts_documents": spec.accepts_documents,
            "has_key": self._has_key,
            "health": {
                "attempts": health.attempts,
                "failures": health.failures,
                "failures_in_a_row": health.failures_in_a_row,
                "last_failure": health.last_failure,
                "last_failure_at": health.last_failure_at,
                "last_success_at": health.last_success_at,
            },
        }

    async def aclose(self) -> None:
        await self._transport.aclose()


def _transport_of(spec: UpstreamSpec) -> AiohttpTransport:
    return AiohttpTransport(
        timeouts=spec.timeouts, connections=spec.max_connections, proxy_from_env=spec.proxy_from_env
    )


def _httpx_request(
    method: str, url: httpx.URL, headers: Headers, content: bytes | AsyncIterable[bytes], target: bytes
) -> httpx.Request:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    if isinstance(content, bytes):
        # As a stream, because httpx would add headers otherwise, which the transport adds as well.
        return httpx.Request(method, url, headers=raw, stream=httpx.ByteStream(content), extensions={"target": target})
    return httpx.Request(method, url, headers=raw, content=content, extensions={"target": target})


def _basic_auth(base_url: str) -> dict[str, str]:
    """The header for a user and password in the URL, which the settings (but not the file) allow."""
    url = httpx.URL(base_url)
    if not url.userinfo:
        return {}
    return {"authorization": "Basic " + b64encode(f"{url.username}:{url.password}".encode()).decode()}


def _on_the_wire(text: str) -> str:
    """As UTF-8, with one character for each byte."""
    return text.encode().decode("latin-1")
