"""One upstream, with its connections, key, URLs and health. Sends requests to the upstream."""

import re
from base64 import b64encode
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import httpx
import structlog
from msgspec import Struct

from app.config import UpstreamSpec
from app.errors import InvalidRequestError, UnknownModelError, UpstreamKeyError
from app.settings import UpstreamApi
from app.upstream.headers import Headers, OutgoingHeaders, key_header
from app.upstream.key_source import KeySource
from app.upstream.retry import AttemptResult, result_of_error, result_of_response
from app.upstream.transport import AiohttpTransport


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyFormat:
    """The format of the body that an upstream needs. ``model`` is the upstream's name for the model, and ``renamed``
    means that it differs from the name in the request. ``documents`` means that the upstream accepts the field
    ``documents``."""

    model: str | None
    renamed: bool = False
    documents: bool = False


Content = bytes | AsyncIterable[bytes] | Callable[[BodyFormat], bytes]


class UpstreamRequest(Struct, frozen=True, kw_only=True):
    """A request to an upstream. ``path`` and ``query`` are the parts of the URL after ``/v1``, as the client sent them.
    ``model`` selects the upstream. ``repeatable`` means that the request may safely be sent twice. ``content`` may be a
    function that builds the body for the selected upstream.
    """

    method: str
    path: str
    headers: Headers
    content: Content
    accept_encoding: str
    query: str = ""
    model: str | None = None
    repeatable: bool = False

    @property
    def replayable(self) -> bool:
        return isinstance(self.content, bytes) or callable(self.content)


_OF_A_DEPLOYMENT = frozenset(
    {"/chat/completions", "/completions", "/embeddings", "/images/generations", "/images/edits", "/audio/speech",
     "/audio/transcriptions", "/audio/translations"}
)  # fmt: skip
_UNSAFE = re.compile(r"[^\x21-\x7e\x80-\xff]")
_AZURE_V1 = "/openai/v1"


def by_deployment(spec: UpstreamSpec) -> bool:
    """Return whether this is Azure's older API, in which the URL contains the model."""
    return spec.api is UpstreamApi.AZURE and not spec.base_url.endswith(_AZURE_V1)


def url_of(spec: UpstreamSpec, path: str, query: str, model: str | None) -> str:
    """Return the URL for ``path``, which is the part after ``/v1``. ``query`` remains unchanged. Raises
    UnknownModelError for a model name that would change the path.
    """
    base = spec.base_url
    if by_deployment(spec):
        base = base.removesuffix("/openai") + "/openai"
        if model is not None and path in _OF_A_DEPLOYMENT:
            if model in (".", ".."):
                raise UnknownModelError(f"There is no deployment named {model!r}.", param="model")
            base += f"/deployments/{quote(model, safe='')}"
    if spec.api_version is not None and "api-version=" not in query:
        query = f"api-version={spec.api_version}" + (f"&{query}" if query else "")
    return f"{base}{path}" + (f"?{query}" if query else "")


@lru_cache(maxsize=256)
def parsed(url: str) -> tuple[httpx.URL, bytes]:
    """Return the URL without credentials, and its exact path and query as bytes. ``url`` has one character for each
    byte. Raises InvalidRequestError if the URL is invalid, which can be only due to the part that the client sent."""
    slash = url.find("/", url.index("://") + 3)
    target = url[slash:] if slash >= 0 else "/"
    try:
        if _UNSAFE.search(target):
            raise httpx.InvalidURL("the path or query contains unprintable characters")
        return httpx.URL(url).copy_with(userinfo=b""), target.encode("latin-1")
    except (httpx.InvalidURL, UnicodeEncodeError):
        raise InvalidRequestError("The request's path or query is not a valid URL.") from None


_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class AttemptHistory:
    """Statistics on the attempts of this process since it started."""

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
    """Sends requests to one upstream over dedicated connections.

    If a key is configured, it replaces the caller's keys. Otherwise, the caller's keys are forwarded.
    """

    def __init__(
        self, spec: UpstreamSpec, *, keys: KeySource, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.spec = spec
        self.health = AttemptHistory()
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
        """Send the request once. The response in the result is open, and the caller must close it."""
        spec = self.spec
        headers = self._headers().of(
            request.headers, accept_encoding=request.accept_encoding, with_keys=with_keys and not self._has_key
        )
        url, target = parsed(url_of(spec, request.path, request.query, body_format.model))
        content = request.content(body_format) if callable(request.content) else request.content
        try:
            # The transport is called directly. httpx.AsyncClient would add cookies and credentials and follow
            # redirects, which a gateway must not do.
            response = await self._transport.handle_async_request(
                _httpx_request(request.method, url, headers, content, target)
            )
        except httpx.HTTPError as error:
            repeatable = request.repeatable and request.replayable
            result = result_of_error(error, replayable=request.replayable, repeatable=repeatable)
        else:
            result = AttemptResult(response=response)
            if not response.is_success:
                result = result_of_response(
                    response,
                    repeatable=request.repeatable and request.replayable,
                    retry_429=spec.retry_429,
                    max_retry_after=spec.max_retry_after,
                )
        self.health.note(result.kind)
        return result

    def _headers(self) -> OutgoingHeaders:
        """Return the headers with the key. A secret is looked up for every request, because it may change."""
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
        """Return a description of the upstream for operators. It contains no keys and no headers, because these may be
        secret."""
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
        # The body is passed as a stream. Otherwise, httpx would add headers that the transport adds too.
        return httpx.Request(method, url, headers=raw, stream=httpx.ByteStream(content), extensions={"target": target})
    return httpx.Request(method, url, headers=raw, content=content, extensions={"target": target})


def _basic_auth(base_url: str) -> dict[str, str]:
    """Return the header for the user and password in the URL, if there are any. A URL in the settings may contain them;
    one in the configuration file may not."""
    url = httpx.URL(base_url)
    if not url.userinfo:
        return {}
    return {"authorization": "Basic " + b64encode(f"{url.username}:{url.password}".encode()).decode()}


def _on_the_wire(text: str) -> str:
    """Encode the text as UTF-8, and return a string with one character for each byte."""
    return text.encode().decode("latin-1")
