"""The client for all upstreams. A request is sent to the upstream that serves its model, with retries and fallbacks.

A request is retried only if no part of a reply has reached the caller and the request is safe to repeat.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from copy import copy
from typing import Any, cast

import httpx
import structlog
from msgspec import Struct

from app.config import UpstreamSpec
from app.errors import UnknownModelError, UpstreamConnectError
from app.upstream.decompression import decompressed
from app.upstream.key_source import KeySource, NoKeys
from app.upstream.provider import Provider, UpstreamRequest
from app.upstream.retry import AttemptResult, pause, translate
from app.upstream.router import Route, Router

_log = structlog.stdlib.get_logger(__name__)


class RoutedResponse(Struct, frozen=True, kw_only=True):
    """The open response of an upstream. The caller must close it. ``model`` is the model name sent to that upstream."""

    response: httpx.Response
    upstream: str
    model: str | None


def _ignore(_kind: str) -> None:
    pass


class UpstreamClient:
    """The upstream client of a process. Its connection pools live as long as the process. There must be at least one
    upstream. The first receives requests without a model.

    ``keys`` provides keys stored as secrets. ``observe`` is called with the kind of each failure that is followed by
    another attempt. ``transport`` replaces the network, and ``sleep`` replaces the pauses between attempts.
    ``names_of`` replaces the method of the same name, for example with another client's.
    """

    def __init__(
        self,
        specs: Sequence[UpstreamSpec],
        *,
        keys: KeySource | None = None,
        observe: Callable[[str], None] = _ignore,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        names_of: Callable[[str | None], tuple[str, ...]] | None = None,
    ) -> None:
        self._providers = {spec.name: Provider(spec, keys=keys or NoKeys(), transport=transport) for spec in specs}
        self._router = Router(specs)
        self._observe, self._sleep, self._names_of = observe, sleep, names_of
        self.by_model = len(specs) > 1 or any(
            provider.by_deployment or provider.spec.alias or list(provider.spec.models) != ["*"]
            for provider in self._providers.values()
        )
        """Whether the model affects where or how a request is sent."""

    async def send(self, request: UpstreamRequest) -> RoutedResponse:
        """Send a request, and return once the headers of a response have arrived, even if it is an error response.

        Raises UnknownModelError, UpstreamConnectError or UpstreamTimeoutError. Cancelling the call closes the
        connection.
        """
        routes = self._router.routes(request.model)
        if not routes:
            raise UnknownModelError(f"No upstream serves the model {request.model!r:.100}.", param="model")
        *others, last = routes
        for route in others:
            result = await self._try(route, request, first=route is routes[0])
            if not result.elsewhere:
                return _routed(route, result)
            await self._discard(route, result)
        return _routed(last, await self._try(last, request, first=last is routes[0]))

    async def _try(self, route: Route, request: UpstreamRequest, *, first: bool) -> AttemptResult:
        """Call one upstream, with retries."""
        provider = self._providers[route.name]
        for number in range(provider.spec.retries):
            # The caller's keys are meant for the upstream that serves the model. They are not sent to a fallback.
            result = await provider.attempt(request, route.body_format, with_keys=first)
            if not result.again:
                return result
            await self._discard(route, result)
            await self._sleep(pause(number, result.after_s))
        return await provider.attempt(request, route.body_format, with_keys=first)

    async def _discard(self, route: Route, result: AttemptResult) -> None:
        """Close and report a failed attempt that is followed by another attempt."""
        await result.discard()
        kind = result.kind or "connect"
        self._observe(kind)
        status = result.response.status_code if result.response is not None else None
        _log.warning(
            "upstream_attempt_failed", upstream=route.name, kind=kind, http_status=status, detail=result.detail
        )

    def names_of(self, model: str | None) -> tuple[str, ...]:
        """Return all names of ``model``: the given name, and its names at the upstreams that may receive the
        request."""
        if self._names_of is not None:
            return self._names_of(model)
        routed = (route.body_format.model for route in self._router.routes(model))
        return tuple(dict.fromkeys(name for name in (model, *routed) if name is not None))

    def serves(self, glob: str) -> bool:
        """Return whether an upstream serves a model that matches ``glob``, which is a name or a shell glob."""
        return self._router.serves(glob)

    def describe(self) -> list[dict[str, Any]]:
        """Return descriptions of all upstreams for operators. They contain no secrets. The health is that seen by this
        process."""
        return [provider.describe() for provider in self._providers.values()]

    async def aclose(self) -> None:
        for provider in self._providers.values():
            await provider.aclose()


def decoded(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the decompressed bytes of the response, in pieces of limited size.

    Raises UpstreamConnectError or UpstreamTimeoutError.
    """
    encoding = response.headers.get("content-encoding")
    return decompressed(RawBody(response), encoding) if encoding else RawBody(response)


class RawBody:
    """Iterates over the bytes of the response as received. This is a class rather than a generator, because a generator
    would have to be closed.

    Raises UpstreamConnectError or UpstreamTimeoutError.
    """

    def __init__(self, response: httpx.Response) -> None:
        self._bytes = aiter(cast(httpx.AsyncByteStream, response.stream))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._bytes)
        except httpx.HTTPError as error:
            raise translate(error) from error


def _routed(route: Route, result: AttemptResult) -> RoutedResponse:
    if result.error is not None:
        _log.warning("upstream_failed", upstream=route.name, kind=result.kind, detail=result.detail)
    if result.response is None:
        # A copy is raised, because an error that was raised keeps its stack frames, and thus this result, in memory.
        raise copy(result.error) or UpstreamConnectError("The upstream is unreachable.")
    return RoutedResponse(response=result.response, upstream=route.name, model=route.body_format.model)
