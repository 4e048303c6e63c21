"""One upstream: its pool, its key, its URLs, and how it has fared."""

from dataclasses import dataclass
from datetime import UTC, datetime
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import httpx

from app.config import UpstreamSpec
from app.upstream.headers import key_header, sent_headers
from app.upstream.outcome import Outcome, of_error, of_response
from app.upstream.request import Form, UpstreamRequest
from app.upstream.transport import AiohttpTransport
from app.upstream.urls import by_deployment, url_of


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

    def __init__(self, spec: UpstreamSpec, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.spec = spec
        self.health = Health()
        self.by_deployment = by_deployment(spec)
        self._own = dict(spec.headers)
        if spec.key is not None:
            name, value = key_header(spec.api, spec.key.get_secret_value())
            self._own[name] = value
        self._client = httpx.AsyncClient(
            transport=transport
            or AiohttpTransport(
                timeouts=spec.timeouts, connections=spec.max_connections, proxy_from_env=spec.proxy_from_env
            ),
            timeout=None,  # noqa: S113  # the transport keeps the time
            headers={"user-agent": "groundlane"},
            follow_redirects=False,
            trust_env=False,
        )
        # The client is shared by all callers: no cookie of one may reach another.
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    async def attempt(self, request: UpstreamRequest, form: Form, *, with_keys: bool) -> Outcome:
        """Send once. The outcome's response is open; whoever takes it closes it."""
        spec = self.spec
        headers = sent_headers(
            request.headers,
            own=self._own,
            api=spec.api,
            accept_encoding=request.accept_encoding,
            with_keys=with_keys and spec.key is None,
        )
        url = url_of(spec, request.path, request.query, form.model)
        content = request.content(form) if callable(request.content) else request.content
        built = self._client.build_request(
            request.method,
            url,
            # As bytes, since a client may send what is not ASCII.
            headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
            content=content or None,
            extensions={"target": _target(url)},
        )
        try:
            response = await self._client.send(built, stream=True)
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
            "has_key": spec.key is not None,
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
        await self._client.aclose()


def _target(url: str) -> bytes:
    _, _, rest = url.partition("://")
    slash = rest.find("/")
    return rest[slash:].encode("latin-1") if slash >= 0 else b"/"
