"""Runs a pasted or upstream answer through the gateway's pipeline without writing to the event log. Reports what the
gateway would send to a client, as it happens."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import orjson
import structlog

from app.config import UpstreamSpec
from app.errors import GatewayError
from app.events.queries import trace_of
from app.events.records import RecordedRequest, RequestEvent
from app.events.serialization import event_rows
from app.gateway.service import Gateway
from app.gateway.types import GatewayRequest
from app.protocols.common.known_fields import KnownFields
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
from app.upstream import UpstreamClient
from judges.concurrency import TaskScope
from judges.types import Chunk
from policies.policy_selection import PolicyEngine

_log = structlog.stdlib.get_logger(__name__)

AGENT = "playground"
_WORD = re.compile(r"\s*\S+|\s+\Z")
_MOST_PIECES = 240
_PAUSE_S = 0.02
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,60}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundRun:
    """A playground run. If ``answer`` is None, ``model`` answers the ``question``. ``documents`` are in the request
    format. If ``engine`` is None, the active policies for ``agent`` apply."""

    documents: Sequence[Mapping[str, Any]]
    answer: str | None
    question: str
    model: str
    agent: str
    engine: PolicyEngine | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelText:
    """Text from the model, not judged yet."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceReleased:
    """A sentence was sent to the client, with its claims as the client sees them. ``skipped`` is withheld text before
    the sentence. ``held`` is text after it that is still in the buffer."""

    text: str
    claims: Sequence[Mapping[str, Any]]
    skipped: str
    held: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementSent:
    """The client received this text instead of blocked text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The run has ended. ``trace`` has the format of the event log. ``error`` says why the reply failed or was cut
    off."""

    trace: Mapping[str, Any] | None
    error: str | None


PlaygroundEvent = ModelText | SentenceReleased | ReplacementSent | RunFinished


async def run_playground(resources: Resources, run: PlaygroundRun) -> AsyncGenerator[PlaygroundEvent, None]:
    """Run a reply and yield events as they happen. Closing the generator stops the run. Raises InvalidRequestError on
    the first step if the documents or options are invalid."""
    request_with = _request_factory(resources, run)
    queue: asyncio.Queue[PlaygroundEvent] = asyncio.Queue()
    tasks = TaskScope()
    live = _streams_live(resources, run)
    call = request_with(_ReportingAdapter(queue.put_nowait, live=live))
    try:
        tasks.start(_run(resources, run, call, queue))
        while True:
            event = await queue.get()
            yield event
            if isinstance(event, RunFinished):
                return
    finally:
        await tasks.aclose()


def read_chunks(resources: Resources, run: PlaygroundRun) -> Sequence[Chunk]:
    """Parse the documents into chunks, like the gateway does. Raises InvalidRequestError."""
    return _request_factory(resources, run)(ChatAdapter()).parsed.chunks


def _request_factory(resources: Resources, run: PlaygroundRun) -> Callable[[ChatAdapter], GatewayRequest]:
    body = {
        "model": run.model,
        "stream": True,
        "messages": [{"role": "user", "content": run.question or "?"}],
        "documents": list(run.documents),
        "grounding": {"agent": run.agent, "inject": "none" if run.answer is not None else "system"},
    }
    parsed = read_chat(json.dumps(body).encode(), {}, Limits.of(resources.settings))
    # The headers of the browser's request, especially its cookies, must not reach the upstream.
    return lambda adapter: GatewayRequest(
        adapter=adapter, parsed=parsed, headers=[("content-type", "application/json")]
    )


def _streams_live(resources: Resources, run: PlaygroundRun) -> bool:
    engine = run.engine or resources.policies.engine
    model = resources.upstream.names_of(run.model)
    policies = engine.in_scope(agent=run.agent, model=model, key=None, unit=AGENT)
    return str(policies.reply_settings.stream_mode) == "live"


async def _run(
    resources: Resources, run: PlaygroundRun, call: GatewayRequest, queue: asyncio.Queue[PlaygroundEvent]
) -> None:
    log = _MemoryLog()
    error: str | None = None
    pasted = None
    if run.answer is not None:
        names_of = resources.upstream.names_of
        pasted = UpstreamClient([_PASTED], transport=_PastedAnswer(run.answer), names_of=names_of)
    try:
        reply = await _gateway(resources, run, log, pasted).respond(call)
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
        _log.exception("playground_run_failed")
        error = "The gateway couldn't complete the reply. See the gateway's log."
    finally:
        if pasted is not None:
            await pasted.aclose()
    trace = trace_of(event_rows(log.events[0])) if log.events else None
    queue.put_nowait(RunFinished(trace=trace, error=error))


def _gateway(resources: Resources, run: PlaygroundRun, log: "_MemoryLog", pasted: UpstreamClient | None) -> Gateway:
    """Build a gateway like the one in this process, but with judging always on and without an event log."""
    settings = resources.settings.model_copy(update={"store_text": StoreText.FULL, "annotate_by_default": True})
    return replace(
        resources.gateway,
        settings=settings,
        upstream=pasted or resources.gateway.upstream,
        policies=resources.policies if run.engine is None else _SelectedPolicy(run.engine),
        events=log,
        observers=(),
        runs=None,
    )


def _refused(status: int, body: bytes) -> str:
    """Return the message for an error response from an upstream. It includes only the error code, because the response
    text may contain keys."""
    code = None
    with suppress(orjson.JSONDecodeError, AttributeError):
        code = (orjson.loads(body).get("error") or {}).get("code")
    shown = f" ({code})" if isinstance(code, str) and _CODE.fullmatch(code) else ""
    return f"The upstream responded with status {status}{shown}."


@dataclass(slots=True)
class _MemoryLog:
    """An event log in memory."""

    events: list[RequestEvent] = field(default_factory=list)

    async def append(self, record: RecordedRequest, /) -> None:
        self.events.append(record.event())


@dataclass(frozen=True, slots=True)
class _SelectedPolicy:
    engine: PolicyEngine


_PASTED = UpstreamSpec(name="pasted", base_url="http://pasted.invalid/v1")


class _PastedAnswer(httpx.AsyncBaseTransport):
    """An upstream that streams the pasted answer a few words at a time. A second request, to regenerate the answer,
    gets a 400."""

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


class _ReportingAdapter(ChatAdapter):
    """Reports the model's text and the gateway's output instead of encoding them. If ``live``, text is sent before it
    is judged."""

    judges_reasoning = False  # the playground shows only the answer

    def __init__(
        self, report: Callable[[PlaygroundEvent], None], *, live: bool, fields: KnownFields | None = None
    ) -> None:
        super().__init__(fields)
        self._report, self._live = report, live
        self._said = ""
        self._at = 0

    def restricted(self, fields: KnownFields) -> "_ReportingAdapter":
        return _ReportingAdapter(self._report, live=self._live, fields=fields)

    def decode(
        self, body: AsyncIterator[bytes], content_type: str, *, dropped: Collection[int] = ()
    ) -> AsyncGenerator[UpstreamEvent, None]:
        return self._observe(super().decode(body, content_type, dropped=dropped))

    def decode_continued(
        self, body: AsyncIterator[bytes], content_type: str, like: Frame
    ) -> AsyncGenerator[UpstreamEvent, None]:
        return self._observe(super().decode_continued(body, content_type, like))

    async def _observe(self, events: AsyncIterator[UpstreamEvent]) -> AsyncGenerator[UpstreamEvent, None]:
        async for event in events:
            for part in event.parts:
                if isinstance(part, TextDelta) and part.text:
                    self._said += part.text
                    self._report(ModelText(text=part.text))
            yield event

    def encode(self, output: Output) -> bytes:
        match output:
            case ReleasedText(text=text, claims=claims) if not self._live:
                self._sentence_sent(text, claims)
            case JudgedClaims(claims=claims) if claims:
                end = max((claim["span"] or {}).get("end", 0) for claim in claims)
                self._sentence_sent(self._said[self._at : max(end, self._at)], claims)
            case ReplacementText(text=text):
                self._report(ReplacementSent(text=text))
        return b""

    def _sentence_sent(self, text: str, claims: Sequence[Mapping[str, Any]]) -> None:
        skipped, own = "", text.strip()
        found = self._said.find(own, self._at) if own else -1
        if found >= 0:
            skipped = self._said[self._at : found].strip()
            self._at = found + len(own)
        self._report(SentenceReleased(text=text, claims=claims, skipped=skipped, held=self._said[self._at :]))
