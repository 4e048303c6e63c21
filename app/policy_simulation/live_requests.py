"""Simulates a policy on given requests with given upstream replies. Each request passes through the gateway twice, but
nothing is sent or logged."""

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
from app.policy_simulation.logged_requests import with_candidate
from app.protocols.documents import Limits, read_chat
from app.protocols.openai_chat.adapter import ChatAdapter
from app.upstream import UpstreamClient
from policies.policy_selection import PolicyEngine
from policies.types import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """A request to simulate. ``body`` is the request body for ``/v1/chat/completions``, and ``reply`` is the text of
    the upstream's reply."""

    body: Mapping[str, Any]
    reply: str = ""


@dataclass(frozen=True, slots=True)
class _Fixed:
    engine: PolicyEngine


@dataclass(slots=True)
class _Kept:
    """An in-memory event log."""

    events: list[RequestEvent] = field(default_factory=list)

    async def append(self, record: RecordedRequest, /) -> None:
        self.events.append(record.event())


async def simulate_live(
    gateway: Gateway, engine: PolicyEngine, candidate: Policy, given: Sequence[LiveRequest], *, show: int
) -> SimulationSummary:
    """Evaluate each request in ``given`` with ``engine``, and again with ``candidate`` in place of the policy with the
    same id.

    Raises InvalidRequestError for a body that the gateway would reject.
    """
    summary = SimulationSummary(show=show)
    for request in given:
        before, after = [await _decided(gateway, one, request) for one in (engine, with_candidate(engine, candidate))]
        summary.add(
            SimulatedRequest(
                request_id=None,
                ts=None,
                agent=after.request.agent,
                model=after.request.model,
                before=_outcome(before),
                after=_outcome(after),
            )
        )
    return summary


async def _decided(gateway: Gateway, engine: PolicyEngine, given: LiveRequest) -> RequestEvent:
    transport = httpx.MockTransport(lambda _request: _answer(given))
    upstream = UpstreamClient([_SPEC], transport=transport, names_of=gateway.upstream.names_of)
    log = _Kept()
    dry = replace(gateway, policies=_Fixed(engine), upstream=upstream, events=log, observers=())
    # The body is encoded first, so that it is parsed or rejected exactly like a body that a client sends.
    parsed = read_chat(json.dumps(_body(given)).encode(), {}, Limits.of(gateway.settings))
    try:
        await dry.respond(GatewayRequest(adapter=ChatAdapter(), parsed=parsed, headers=[]))
    except PolicyBlockedError:
        pass  # The decision is recorded in the event.
    finally:
        await upstream.aclose()
    return log.events[-1]


def _body(given: LiveRequest) -> dict[str, Any]:
    # The whole reply is known, so it isn't streamed. The decisions would be the same with a stream.
    body: dict[str, Any] = {**given.body, "stream": False, "n": 1}
    if isinstance(options := body.get("grounding"), Mapping):
        # A simulation must not add to a run.
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
