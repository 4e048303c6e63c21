"""One upstream: its pool, its key, its URLs, and how it has fared."""

from base64 import b64encode
from collections.abc import AsyncIterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import structlog

from app.config import UpstreamSpec
from app.errors import UpstreamKeyError
from app.upstream.headers import Outgoing, key_header
from app.upstream.request import Form, Headers, UpstreamRequest
from app.upstream.retry import Outcome, of_error, of_response
from app.upstream.transport import AiohttpTransport
from app.upstream.upstream_keys import KeySource
from app.upstream.urls import by_deployment, parsed, url_of

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Health:
    """Attempts of this process since its start."""

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
    """Sends to one upstream, through a pool of its own that lives as long as the process.

    With a key configured, that key is sent and every key of the caller is taken out; without one the caller's own pass.
    """

    def __init__(
        self, spec: UpstreamSpec, *, keys: KeySource, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.spec = spec
        self.health = Health()
        self.by_deployment = by_deployment(spec)
        self._own = {**_basic_auth(spec.base_url), **{name: _on_the_wire(text) for name, text in spec.headers.items()}}
        if spec.key is not None:
            name, value = key_header(spec.api, spec.key.get_secret_value())
            self._own[name] = value
        self._outgoing = Outgoing(self._own, spec.api)
        self._keys = keys
        self._key: str | None = None
        self._has_key = spec.secret is not None or bool({"authorization", "x-api-key", "api-key"} & self._own.keys())
        self._transport = transport or _transport_of(spec)

    async def attempt(self, request: UpstreamRequest, form: Form, *, with_keys: bool) -> Outcome:
        """Send once. The outcome's response is open; whoever takes it closes it."""
        spec = self.spec
        headers = self._headers().of(
            request.headers, accept_encoding=request.accept_encoding, with_keys=with_keys and not self._has_key
        )
        url, target = parsed(url_of(spec, request.path, request.query, form.model))
        content = request.content(form) if callable(request.content) else request.content
        try:
            # Straight to the transport: a gateway wants nothing of what a client does on the way (cookies, redirects,
            # credentials of the environment).
            response = await self._transport.handle_async_request(
                _httpx_request(request.method, url, headers, content, target)
            )
        except httpx.HTTPError as error:
            repeatable = request.repeatable and request.replayable
            outcome = of_error(error, replayable=request.replayable, repeatable=repeatable)
        else:
            outcome = of_response(
                response,
                repeatable=request.repeatable and request.replayable,
                retry_429=spec.retry_429,
                max_retry_after=spec.max_retry_after,
            )
        self.health.note(outcome.kind)
        return outcome

    def _headers(self) -> Outgoing:
        """With its key. A secret is looked up each time, because it may change."""
        spec = self.spec
        if spec.secret is None:
            return self._outgoing
        key = self._keys.key(spec.secret)
        if key is None:
            _log.error("upstream_key_missing", upstream=spec.name, name=spec.secret)
            raise UpstreamKeyError(f"The key of the upstream {spec.name!r} is not there.")
        if key != self._key:
            name, value = key_header(spec.api, key)
            self._key, self._outgoing = key, Outgoing({**self._own, name: value}, spec.api)
        return self._outgoing

    def describe(self) -> dict[str, Any]:
        """What an operator may see: no key, and no header, since one may be a secret."""
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
        # As a stream, since httpx otherwise makes up headers, which the transport does as well.
        return httpx.Request(method, url, headers=raw, stream=httpx.ByteStream(content), extensions={"target": target})
    return httpx.Request(method, url, headers=raw, content=content, extensions={"target": target})


def _basic_auth(base_url: str) -> dict[str, str]:
    """The header for a user and a password in the URL, as the settings (not the file) may have them."""
    url = httpx.URL(base_url)
    if not url.userinfo:
        return {}
    return {"authorization": "Basic " + b64encode(f"{url.username}:{url.password}".encode()).decode()}


def _on_the_wire(text: str) -> str:
    """As UTF-8, with a character for each byte."""
    return text.encode().decode("latin-1")
