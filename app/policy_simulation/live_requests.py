"""A policy over requests that are given, each with the reply that an upstream would make: through the gateway itself,
twice, with nothing sent anywhere and nothing logged."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from app.config.models import UpstreamSpec
from app.errors import PolicyBlockedError
from app.events.records import RecordedRequest, RequestEvent
from app.gateway.service import Gateway
from app.gateway.types import GatewayRequest
from app.policy_simulation.comparison import DecisionBrief, SimulatedOutcome, SimulatedRequest, SimulationSummary
from app.policy_simulation.logged_requests import replacing
from app.protocols.documents import Limits, read_chat
from app.protocols.openai_chat.adapter import ChatAdapter
from app.upstream import Upstreams
from policies.engine import PolicyEngine
from policies.types import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """``body`` is that of a request to ``/v1/chat/completions``; ``reply`` the text of the reply to it."""

    body: Mapping[str, Any]
    reply: str = ""


@dataclass(frozen=True, slots=True)
class _Fixed:
    engine: PolicyEngine


@dataclass(slots=True)
class _Kept:
    """An event log of one event."""

    events: list[RequestEvent] = field(default_factory=list)

    async def append(self, record: RecordedRequest, /) -> None:
        self.events.append(record.event())


async def simulate_live(
    gateway: Gateway, engine: PolicyEngine, candidate: Policy, given: Sequence[LiveRequest], *, show: int
) -> SimulationSummary:
    """Decide each of ``given`` under ``engine``, and again with ``candidate`` in place of the policy of its id.

    Raises InvalidRequestError for a body that the gateway would refuse.
    """
    tally = SimulationSummary(show=show)
    for request in given:
        before, after = [await _decided(gateway, one, request) for one in (engine, replacing(engine, candidate))]
        tally.add(
            SimulatedRequest(
                request_id=None,
                ts=None,
                agent=after.request.agent,
                model=after.request.model,
                before=_outcome(before),
                after=_outcome(after),
            )
        )
    return tally


async def _decided(gateway: Gateway, engine: PolicyEngine, given: LiveRequest) -> RequestEvent:
    upstream = Upstreams([_SPEC], transport=httpx.MockTransport(lambda _request: _answer(given)))
    log = _Kept()
    dry = replace(gateway, policies=_Fixed(engine), upstream=upstream, events=log, observers=())
    # Written so that whatever JSON can hold is read as it would be from a client, or refused as it would be.
    parsed = read_chat(json.dumps(_body(given)).encode(), {}, Limits.of(gateway.settings))
    try:
        await dry.respond(GatewayRequest(adapter=ChatAdapter(), parsed=parsed, headers=[]))
    except PolicyBlockedError:
        pass  # the event says so
    finally:
        await upstream.aclose()
    return log.events[-1]


def _body(given: LiveRequest) -> dict[str, Any]:
    # A reply that is known whole needs no stream; what is decided of it is the same.
    body: dict[str, Any] = {**given.body, "stream": False, "n": 1}
    if isinstance(options := body.get("grounding"), Mapping):
        # Nothing is added to a run.
        body["grounding"] = {name: value for name, value in options.items() if name != "run_id"}
    return body


def _answer(given: LiveRequest) -> httpx.Response:
    message = {"role": "assistant", "content": given.reply}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    reply = {"id": "simulated", "object": "chat.completion", "created": 0, "model": "simulated", "choices": [choice]}
    return httpx.Response(200, json=reply)


def _outcome(event: RequestEvent) -> SimulatedOutcome:
    return SimulatedOutcome.of(event.request.action, map(DecisionBrief.of, event.decisions))


_SPEC = UpstreamSpec(name="simulated", base_url="http://simulated.invalid/v1")
