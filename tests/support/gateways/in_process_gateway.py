"""An in-process gateway: a scripted upstream behind a mock transport, a scripted judge, and policies from plain
dicts."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from app.config import UpstreamSpec, load_config
from app.events.records import RecordedRequest, RequestEvent
from app.gateway.service import Gateway
from app.gateway.types import GatewayRequest, GatewayResponse
from app.protocols.documents import Limits, read_chat
from app.protocols.openai_chat.adapter import ChatAdapter
from app.reply.checks.final_checks import FinalCheck
from app.settings import Settings
from app.upstream import UpstreamClient
from judges.checker import GroundingChecker
from judges.protocols import LlmClaimJudge
from judges.testing import NEUTRAL, ScriptedJudge, contradicts, entails
from judges.types import Probabilities
from policies.policy_selection import PolicyEngine
from policies.registry import parse_rules
from policies.types import Policy

TRUE = "Permanent staff receive 25 days of annual leave."
FALSE = "Permanent staff receive 40 days of annual leave."
UNKNOWN = "Bicycles may be parked behind the canteen."
DOCUMENTS = [{"id": "hr-7", "text": TRUE, "source": "hr.pdf", "relevance_score": 0.9, "age_days": 3}]
URL = "https://hr.test/7"
LINKED = [{**DOCUMENTS[0], "url": URL}]
"""The same with a URL, because chat messages have annotations only for documents that have one."""


def verdict(evidence: str, claim: str) -> Probabilities:
    if FALSE in claim:
        return contradicts()
    return entails() if TRUE in claim else NEUTRAL


def chunk(delta: Mapping[str, Any], finish: str | None = None, index: int = 0, **fields: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": dict(delta), "finish_reason": finish}
    return {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m-1", "choices": [choice], **fields}


USAGE = {**chunk({}), "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}}


def sse(*chunks: Mapping[str, Any] | str, done: bool = True) -> bytes:
    frames = [c if isinstance(c, str) else f"data: {json.dumps(c)}\n\n" for c in chunks]
    return "".join([*frames, "data: [DONE]\n\n" if done else ""]).encode()


def said(*texts: str, finish: str | None = "stop", usage: bool = False) -> bytes:
    """Return a stream with a chunk for each of ``texts``."""
    chunks = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": text}) for text in texts)]
    if finish:
        chunks.append(chunk({}, finish))
    return sse(*chunks, *([USAGE] if usage else []), done=finish is not None)


def whole(*texts: str, **message: Any) -> dict[str, Any]:
    """Return a completion with a choice for each of ``texts``."""
    choices = [
        {"index": i, "message": {"role": "assistant", "content": text, **message}, "finish_reason": "stop"}
        for i, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    return {"id": "c-1", "object": "chat.completion", "created": 1, "model": "m-1", "choices": choices, "usage": usage}


@dataclass
class Events:
    written: list[RequestEvent] = field(default_factory=list)

    async def append(self, record: RecordedRequest) -> None:
        self.written.append(record.event())


@dataclass
class Policies:
    engine: PolicyEngine


@dataclass
class Bench:
    """A gateway and its observed behaviour."""

    gateway: Gateway
    events: Events
    forwarded: list[httpx.Request]

    @property
    def event(self) -> RequestEvent:
        (event,) = self.events.written
        return event

    async def ask(
        self, *, documents: Any = DOCUMENTS, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> GatewayResponse:
        body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "How much leave?"}], **fields}
        if documents is not None:
            body["documents"] = documents
        parsed = read_chat(json.dumps(body).encode(), headers or {}, Limits(documents=100))
        return await self.gateway.respond(GatewayRequest(adapter=ChatAdapter(), parsed=parsed, headers=[]))

    async def stream(self, **fields: Any) -> list[dict[str, Any] | str]:
        """Request a stream, and return its frames decoded (``[DONE]`` and comments unchanged)."""
        return frames(await self.stream_bytes(**fields))

    async def stream_bytes(self, **fields: Any) -> bytes:
        reply = await self.ask(stream=True, **fields)
        assert reply.stream is not None
        data = b"".join([part async for part in reply.stream])
        await reply.stream.aclose()
        return data

    async def unary(self, **fields: Any) -> dict[str, Any]:
        return dict(json.loads((await self.ask(**fields)).body))


def frames(data: bytes) -> list[dict[str, Any] | str]:
    blocks = [block for block in data.decode().split("\n\n") if block]
    return [
        json.loads(block.removeprefix("data: ")) if block.startswith("data: {") else block.removeprefix("data: ")
        for block in blocks
    ]


def text_of(stream: Sequence[dict[str, Any] | str], index: int = 0) -> str:
    return "".join(
        choice["delta"].get("content") or ""
        for frame in stream
        if isinstance(frame, dict)
        for choice in frame.get("choices", ())
        if choice.get("index", 0) == index
    )


def summary_of(stream: Sequence[dict[str, Any] | str]) -> dict[str, Any]:
    return next(
        frame["grounding"] for frame in stream if isinstance(frame, dict) and "verdict" in frame.get("grounding", {})
    )


def finish_of(stream: Sequence[dict[str, Any] | str], index: int = 0) -> list[str]:
    return [
        choice["finish_reason"]
        for frame in stream
        if isinstance(frame, dict)
        for choice in frame.get("choices", ())
        if choice.get("index", 0) == index and choice.get("finish_reason")
    ]


def policy(category: str = "grounding", **rules: Any) -> Policy:
    return Policy(id=f"pol-{category}", name=category, category=category, rules=parse_rules(category, rules))


async def bench(
    answer: bytes | dict[str, Any] | Callable[[httpx.Request], httpx.Response | AsyncIterator[bytes]],
    *policies: Policy,
    judge: ScriptedJudge | None = None,
    settings: Mapping[str, Any] | None = None,
    upstreams: Sequence[UpstreamSpec] = (),
    llm: LlmClaimJudge | None = None,
    final_checks: Sequence[FinalCheck] = (),
    scorer: bool = True,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Bench:
    """Return a gateway whose upstream gives ``answer``: a stream, a completion, or the result of a function of the
    request. If ``scorer`` is False, there is no cross-encoder."""
    forwarded: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        forwarded.append(request)
        made = answer(request) if callable(answer) else answer
        if isinstance(made, httpx.Response):
            return made
        if isinstance(made, dict):
            return httpx.Response(200, json=made)
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=made)

    config = Settings(_env_file=None, **dict(settings or {}))
    checker = GroundingChecker((judge if judge is not None else ScriptedJudge(verdict)) if scorer else None, llm=llm)
    await checker.start()
    events = Events()
    gateway = Gateway(
        settings=config,
        upstream=UpstreamClient(
            upstreams or load_config(config).upstreams, transport=transport or httpx.MockTransport(handle)
        ),
        policies=Policies(PolicyEngine(policies)),
        checker=checker,
        events=events,
        final_checks=final_checks,
    )
    return Bench(gateway, events, forwarded)
