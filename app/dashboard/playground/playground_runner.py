"""A reply taken through the gateway's own pipeline for somebody to watch: nothing of it reaches the event log.

The words are pasted, or the upstream's. What the gateway would send to a client is told as it happens.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import orjson
import structlog

from app.concurrency import TaskScope
from app.config import UpstreamSpec
from app.errors import GatewayError
from app.events.queries import trace_of
from app.events.recorder import RequestRecorder
from app.events.records import RequestEvent
from app.events.storage.serialization import event_rows
from app.gateway.service import Gateway
from app.gateway.types import GatewayRequest
from app.protocols.common.stream_events import (
    Frame,
    JudgedClaims,
    Output,
    ReleasedText,
    ReplacementText,
    TextDelta,
    UpstreamEvent,
)
from app.protocols.documents import Limits, read_chat
from app.protocols.openai_chat.adapter import ChatAdapter
from app.resources import Resources
from app.settings import StoreText
from app.upstream import Upstreams
from judges.types import Chunk
from policies.engine import PolicyEngine

_log = structlog.stdlib.get_logger(__name__)

AGENT = "playground"
_WORD = re.compile(r"\s*\S+|\s+\Z")
_MOST_PIECES = 240
_PAUSE_S = 0.02
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,60}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """What to take through. ``answer`` None: the upstream is asked ``question``, with ``model``. ``documents`` are as a
    request has them. ``engine`` None: the policies in force decide, as they would for ``agent``."""

    documents: Sequence[Mapping[str, Any]]
    answer: str | None
    question: str
    model: str
    agent: str
    engine: PolicyEngine | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The model said this; nobody has judged it."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A sentence left for the client, with its claims as the client sees them. ``skipped`` was said before it and did
    not leave; ``held`` is what waits behind it."""

    text: str
    claims: Sequence[Mapping[str, Any]]
    skipped: str
    held: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Instead:
    """The client gets this in place of what was blocked."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """The end. ``trace`` is as the event log would give it; ``error`` says why there is no reply, or not all of it."""

    trace: Mapping[str, Any] | None
    error: str | None


Told = Heard | Left | Instead | Over


async def rehearse(resources: Resources, wanted: Rehearsed) -> AsyncGenerator[Told, None]:
    """Take a reply through, and tell what happens. Closing it ends everything. Raises InvalidRequestError, before
    anything else, where documents or options are not as they must be."""
    call_of = _reader(resources, wanted)
    queue: asyncio.Queue[Told] = asyncio.Queue()
    tasks = TaskScope()
    live = _streams_live(resources, wanted)
    call = call_of(_Overheard(queue.put_nowait, live=live))
    try:
        tasks.start(_run(resources, wanted, call, queue))
        while True:
            told = await queue.get()
            yield told
            if isinstance(told, Over):
                return
    finally:
        await tasks.aclose()


def chunks_of(resources: Resources, wanted: Rehearsed) -> Sequence[Chunk]:
    """The documents as the gateway reads them. Raises InvalidRequestError."""
    return _reader(resources, wanted)(ChatAdapter()).parsed.chunks


def _reader(resources: Resources, wanted: Rehearsed) -> Callable[[ChatAdapter], GatewayRequest]:
    body = {
        "model": wanted.model,
        "stream": True,
        "messages": [{"role": "user", "content": wanted.question or "?"}],
        "documents": list(wanted.documents),
        "grounding": {"agent": wanted.agent, "inject": "none" if wanted.answer is not None else "system"},
    }
    parsed = read_chat(json.dumps(body).encode(), {}, Limits.of(resources.settings))
    # No header of the page's own request goes upstream, its cookie least of all.
    return lambda adapter: GatewayRequest(
        adapter=adapter, parsed=parsed, headers=[("content-type", "application/json")]
    )


def _streams_live(resources: Resources, wanted: Rehearsed) -> bool:
    engine = wanted.engine or resources.policies.engine
    policies = engine.in_scope(agent=wanted.agent, model=wanted.model, key=None, unit=AGENT)
    return str(policies.grounding_settings.stream_mode) == "live"


async def _run(resources: Resources, wanted: Rehearsed, call: GatewayRequest, queue: asyncio.Queue[Told]) -> None:
    kept = _Kept()
    error: str | None = None
    pasted = None if wanted.answer is None else Upstreams([_PASTED], transport=_PastedAnswer(wanted.answer))
    try:
        reply = await _gateway(resources, wanted, kept, pasted).respond(call)
        if reply.stream is None:
            error = _refused(reply.status, reply.body)
        else:
            try:
                async for _ in reply.stream:
                    pass
            finally:
                await reply.stream.aclose()
    except GatewayError as failure:
        error = failure.message
    except Exception:
        _log.exception("rehearsal_failed")
        error = "The gateway failed to complete the reply; its log says why."
    finally:
        if pasted is not None:
            await pasted.aclose()
    trace = trace_of(event_rows(kept.events[0])) if kept.events else None
    queue.put_nowait(Over(trace=trace, error=error))


def _gateway(resources: Resources, wanted: Rehearsed, kept: "_Kept", pasted: Upstreams | None) -> Gateway:
    """The process' own gateway, but that it judges whatever the settings say, and tells nobody of it."""
    settings = resources.settings.model_copy(update={"store_text": StoreText.FULL, "annotate_by_default": True})
    return replace(
        resources.gateway,
        settings=settings,
        upstream=pasted or resources.gateway.upstream,
        policies=resources.policies if wanted.engine is None else _Policies(wanted.engine),
        events=kept,
        observers=(),
        runs=None,
    )


def _refused(status: int, body: bytes) -> str:
    """What to say of an upstream's refusal. Its own words may quote keys, so that only its code is repeated."""
    code = None
    with suppress(orjson.JSONDecodeError, AttributeError):
        code = (orjson.loads(body).get("error") or {}).get("code")
    told = f" ({code})" if isinstance(code, str) and _CODE.fullmatch(code) else ""
    return f"The upstream answered with status {status}{told}."


@dataclass(slots=True)
class _Kept:
    """An event log that nobody else reads."""

    events: list[RequestEvent] = field(default_factory=list)

    async def append(self, event: RequestEvent) -> None:
        self.events.append(event)


@dataclass(frozen=True, slots=True)
class _Policies:
    engine: PolicyEngine


_PASTED = UpstreamSpec(name="pasted", base_url="http://pasted.invalid/v1")


class _PastedAnswer(httpx.AsyncBaseTransport):
    """An upstream that says what was pasted, a few words at a time. It cannot say anything else when asked anew."""

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self._asked = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._asked:
            return httpx.Response(400, request=request)
        self._asked = True
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, stream=_Words(self._answer), request=request)


class _Words(httpx.AsyncByteStream):
    def __init__(self, answer: str) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield _frame({"role": "assistant", "content": ""})
        words = _WORD.findall(self._answer)
        size = -(-len(words) // _MOST_PIECES) or 1
        for start in range(0, len(words), size):
            await asyncio.sleep(_PAUSE_S)
            yield _frame({"content": "".join(words[start : start + size])})
        yield _frame({}, "stop")
        yield b"data: [DONE]\n\n"


def _frame(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "pasted", "object": "chat.completion.chunk", "created": 0, "model": "pasted"}
    return b"data: " + json.dumps({**head, "choices": [choice]}).encode() + b"\n\n"


class _Overheard(ChatAdapter):
    """Tells of what goes in and comes out, and writes nothing. ``live``: text leaves before it is judged."""

    def __init__(self, tell: Callable[[Told], None], *, live: bool) -> None:
        self._tell, self._live = tell, live
        self._said = ""
        self._at = 0

    def events(
        self, body: AsyncIterator[bytes], content_type: str, trace: RequestRecorder
    ) -> AsyncGenerator[UpstreamEvent, None]:
        return self._hear(super().events(body, content_type, trace))

    def resumed(
        self, body: AsyncIterator[bytes], content_type: str, trace: RequestRecorder, like: Frame
    ) -> AsyncGenerator[UpstreamEvent, None]:
        return self._hear(super().resumed(body, content_type, trace, like))

    async def _hear(self, events: AsyncIterator[UpstreamEvent]) -> AsyncGenerator[UpstreamEvent, None]:
        async for event in events:
            for part in event.parts:
                if isinstance(part, TextDelta) and part.text:
                    self._said += part.text
                    self._tell(Heard(text=part.text))
            yield event

    def encode(self, output: Output) -> bytes:
        match output:
            case ReleasedText(text=text, claims=claims) if not self._live:
                self._leave(text, claims)
            case JudgedClaims(claims=claims) if claims:
                end = max((claim["span"] or {}).get("end", 0) for claim in claims)
                self._leave(self._said[self._at : max(end, self._at)], claims)
            case ReplacementText(text=text):
                self._tell(Instead(text=text))
        return b""

    def _leave(self, text: str, claims: Sequence[Mapping[str, Any]]) -> None:
        skipped, own = "", text.strip()
        found = self._said.find(own, self._at) if own else -1
        if found >= 0:
            skipped = self._said[self._at : found].strip()
            self._at = found + len(own)
        self._tell(Left(text=text, claims=claims, skipped=skipped, held=self._said[self._at :]))
