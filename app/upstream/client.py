"""The client for all upstreams: a request goes to the upstream that serves its model, with retries and fallbacks.

Nothing of a reply has reached the caller while this goes on, and only requests that may safely be sent twice are.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import structlog
from msgspec import Struct

from app.config import UpstreamSpec
from app.errors import UnknownModelError
from app.upstream.key_source import KeySource, NoKeys
from app.upstream.provider import Provider
from app.upstream.request import UpstreamRequest
from app.upstream.retry import AttemptResult, pause
from app.upstream.router import Route, Router

_log = structlog.stdlib.get_logger(__name__)


class RoutedResponse(Struct, frozen=True, kw_only=True):
    """An upstream's open response; the caller closes it. ``model`` is the model name sent to that upstream."""

    response: httpx.Response
    upstream: str
    model: str | None


def _ignore(_kind: str) -> None:
    pass


class UpstreamClient:
    """One per process, with connection pools that live as long. There is at least one upstream; the first gets requests
    without a model.

    ``keys`` provides keys stored as secrets. ``observe`` is called with the kind of each failure that another attempt
    follows. ``transport`` replaces the network, and ``sleep`` the pauses between attempts.
    """

    def __init__(
        self,
        specs: Sequence[UpstreamSpec],
        *,
        keys: KeySource | None = None,
        observe: Callable[[str], None] = _ignore,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._providers = {spec.name: Provider(spec, keys=keys or NoKeys(), transport=transport) for spec in specs}
        self._router = Router(specs)
        self._observe, self._sleep = observe, sleep
        self.by_model = len(specs) > 1 or any(
            provider.by_deployment or provider.spec.alias or list(provider.spec.models) != ["*"]
            for provider in self._providers.values()
        )
        """Whether the model affects where or how a request is sent."""

    async def send(self, request: UpstreamRequest) -> RoutedResponse:
        """Send a request and return once a response's headers have arrived, even an error's.

        Raises UnknownModelError, UpstreamConnectError or UpstreamTimeoutError. Cancelling it closes its connection.
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
        """Call one upstream, with its retries."""
        provider = self._providers[route.name]
        for number in range(provider.spec.retries):
            # The caller's keys are for the upstream that serves the model, not for a fallback.
            result = await provider.attempt(request, route.body_format, with_keys=first)
            if not result.again:
                return result
            await self._discard(route, result)
            await self._sleep(pause(number, result.after_s))
        return await provider.attempt(request, route.body_format, with_keys=first)

    async def _discard(self, route: Route, result: AttemptResult) -> None:
        """Close and report a failed attempt that another one follows."""
        await result.discard()
        kind = result.kind or "connect"
        self._observe(kind)
        status = result.response.status_code if result.response is not None else None
        _log.warning(
            "upstream_attempt_failed", upstream=route.name, kind=kind, http_status=status, detail=result.detail
        )

    def serves(self, glob: str) -> bool:
        """Whether an upstream serves a model that matches ``glob``, a name or a shell glob."""
        return self._router.serves(glob)

    def describe(self) -> list[dict[str, Any]]:
        """Every upstream as shown to operators, without secrets, with its health as seen by this process."""
        return [provider.describe() for provider in self._providers.values()]

    async def aclose(self) -> None:
        for provider in self._providers.values():
            await provider.aclose()


def _routed(route: Route, result: AttemptResult) -> RoutedResponse:
    if result.error is not None:
        _log.warning("upstream_failed", upstream=route.name, kind=result.kind, detail=result.detail)
    return RoutedResponse(response=result.result(), upstream=route.name, model=route.body_format.model)
