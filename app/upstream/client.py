"""All upstreams of the process: a request goes to the one its model belongs to, again if it failed, then elsewhere.

Nothing of a reply has reached the client while this goes on, and only what may safely be sent twice is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import structlog
from msgspec import Struct

from app.config import UpstreamSpec
from app.errors import UnknownModelError
from app.upstream.provider import Provider
from app.upstream.request import UpstreamRequest
from app.upstream.retry import Outcome, pause
from app.upstream.router import Routes, Stop
from app.upstream.upstream_keys import KeySource, NoKeys

_log = structlog.stdlib.get_logger(__name__)


class Sent(Struct, frozen=True, kw_only=True):
    """An upstream's response, open: whoever takes it closes it. ``model`` is the name that the upstream was given."""

    response: httpx.Response
    upstream: str
    model: str | None


def _ignore(_kind: str) -> None:
    pass


class Upstreams:
    """One per process; its pools live as long as it does. At least one upstream, the first for what names no model.

    ``keys`` has the keys of those whose configuration names a secret. ``observe`` is told the kind of each failure that
    was made up for by another attempt; ``transport`` stands in for the network, and ``sleep`` for the pauses between
    attempts.
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
        self._routes = Routes(specs)
        self._observe, self._sleep = observe, sleep
        self.by_model = len(specs) > 1 or any(
            provider.by_deployment or provider.spec.alias or list(provider.spec.models) != ["*"]
            for provider in self._providers.values()
        )
        """Whether a request's model makes a difference to where or how it is sent."""

    async def send(self, request: UpstreamRequest) -> Sent:
        """Send a request and return once a response's headers are here, be it an error's.

        Raises UnknownModelError, UpstreamConnectError or UpstreamTimeoutError. Cancelling it closes everything at once.
        """
        stops = self._routes.of(request.model)
        if not stops:
            raise UnknownModelError(f"No upstream serves the model {request.model!r:.100}.", param="model")
        *others, last = stops
        for stop in others:
            outcome = await self._try(stop, request, first=stop is stops[0])
            if not outcome.elsewhere:
                return _sent(stop, outcome)
            await self._make_up_for(stop, outcome)
        return _sent(last, await self._try(last, request, first=last is stops[0]))

    async def _try(self, stop: Stop, request: UpstreamRequest, *, first: bool) -> Outcome:
        """Ask one upstream, as often as it may be asked."""
        provider = self._providers[stop.name]
        for number in range(provider.spec.retries):
            # The caller's keys are meant for the upstream that its model belongs to, not for a stand-in.
            outcome = await provider.attempt(request, stop.form, with_keys=first)
            if not outcome.again:
                return outcome
            await self._make_up_for(stop, outcome)
            await self._sleep(pause(number, outcome.after_s))
        return await provider.attempt(request, stop.form, with_keys=first)

    async def _make_up_for(self, stop: Stop, outcome: Outcome) -> None:
        await outcome.discard()
        kind = outcome.kind or "connect"
        self._observe(kind)
        status = outcome.response.status_code if outcome.response is not None else None
        _log.warning(
            "upstream_attempt_failed", upstream=stop.name, kind=kind, http_status=status, detail=outcome.detail
        )

    def describe(self) -> list[dict[str, Any]]:
        """Every upstream as an operator may see it, without secrets, with its health as this process knows it."""
        return [provider.describe() for provider in self._providers.values()]

    async def aclose(self) -> None:
        for provider in self._providers.values():
            await provider.aclose()


def _sent(stop: Stop, outcome: Outcome) -> Sent:
    if outcome.error is not None:
        _log.warning("upstream_failed", upstream=stop.name, kind=outcome.kind, detail=outcome.detail)
    return Sent(response=outcome.result(), upstream=stop.name, model=stop.form.model)
