"""The story of one governed request, from top to bottom.

    read → documents → retrieval decision → upstream → events → sentences → judge → grounding decision → reply → record

Streamed and unary requests take the same way. Whatever the end (a reply, a block, an error, a client that went away),
exactly one event is written, by whoever ended it.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import structlog
from msgspec import structs

from app.auth import GatewayKey
from app.errors import PolicyBlockedError, UpstreamConnectError
from app.events.recorder import RequestRecorder
from app.events.records import EventLog, RequestEvent
from app.gateway.open_choices import admitting, is_refused, opener_of, watch
from app.gateway.request_scope import RequestScope
from app.gateway.types import GatewayRequest, GatewayResponse, ReplyStream, ResumableAdapter
from app.gateway.upstream_request import upstream_request
from app.protocols.common.stream_events import Continuation, ReplyError, ReplyRefusal
from app.protocols.documents import ParsedRequest
from app.protocols.documents.question import asked_in, question_of
from app.reply.context import ReplyContext
from app.reply.final_checks import FinalCheck
from app.reply.grounding_object import retrieval_summary
from app.reply.passthrough import Late, Passage
from app.reply.regeneration import FurtherReply, Regeneration
from app.reply.stream_guard import Enforcement, Mode
from app.runs.run_service import JoinedRun, RunService
from app.settings import Settings
from app.upstream import Headers, Response, Upstreams, decoded, returned_headers
from judges.checker import GroundingChecker
from judges.types import Chunk, Claim, Consistency, ReplyVerdict
from policies.citations.document_names import DocumentNames
from policies.engine import CombinedDecision, PolicyEngine, PolicySet, decision_to_dict
from policies.replay import JudgeOptions
from policies.types import Action, PolicyInputs

_log = structlog.stdlib.get_logger(__name__)


class PolicySource(Protocol):
    """Where the policies in force come from."""

    @property
    def engine(self) -> PolicyEngine: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """One per process. ``observers`` are told of every event written; without ``runs`` the id of a run is a name."""

    settings: Settings
    upstream: Upstreams
    policies: PolicySource
    checker: GroundingChecker
    events: EventLog
    observers: Sequence[Callable[[RequestEvent], None]] = field(default_factory=tuple)
    final_checks: Sequence[FinalCheck] = ()
    runs: RunService | None = None

    async def respond(self, call: GatewayRequest) -> GatewayResponse:
        """Answer a request. Raises GatewayError, with the event written; cancelling it ends everything."""
        parsed, recorder = call.parsed, self._open_recorder(call)
        scope = RequestScope(recorder=recorder, events=self.events, observers=self.observers)
        async with scope:
            if call.key is not None:
                call.key.check_body(parsed.body)
                call.key.check_documents(parsed.chunks, parsed.path_of)
            run = scope.run = await self._join(call, recorder)
            engine = self.policies.engine if run is None else run.engine
            policies = recorder.policies = engine.in_scope(
                agent=recorder.agent,
                model=parsed.model,
                key=call.key_names,
                unit=recorder.run_id or recorder.request_id,
            )
            wanted = policies.grounding_settings.evidence_from_tools
            recorder.tools = None if self.settings.evidence_from_tools or parsed.from_tools is None else wanted
            if self.settings.evidence_from_tools or wanted:
                parsed = _with_tools(parsed, call.key)
                call = structs.replace(call, parsed=parsed)
            elif parsed.late:
                parsed = structs.replace(parsed, late=False)
            ruling = self._retrieve(policies, parsed, recorder)
            kept = tuple(chunk for index, chunk in enumerate(parsed.chunks) if index not in ruling.dropped)
            mode = self._mode(policies, parsed, kept)
            watched = (
                mode is Mode.UNTOUCHED and bool(kept) and bool(PolicySet(policies.shadow).in_category("grounding"))
            )
            judged = watched or mode is not Mode.UNTOUCHED
            recorder.judging = JudgeOptions.of(policies.grounding_settings) if judged else None
            evidence = scope.tasks.start(self.checker.prepare(kept)) if self._judges(judged, kept) else None
            ruling = await self._compare(policies, ruling, parsed, recorder)
            earlier = await run.claims() if run is not None and policies.grounding_settings.consistency_check else ()
            if (forwarded := parsed.drop(ruling.dropped)) is not call.parsed:
                call = structs.replace(call, parsed=forwarded)
            response = await self._send(call, kept, scope)
            if not response.is_success:
                return await self._pass_error(response, scope)
            index = await evidence if evidence is not None else None
            context = self._context(ruling, parsed, kept, mode, earlier)
            late = self._late(ruling, call, kept, mode, recorder, earlier) if parsed.late else None
            if mode is Mode.UNTOUCHED:
                if watched and index is not None:
                    scope.watch = watch(policies, context, self.checker, index)
                scope.enforcement = Passage(recorder=recorder, context=context, watch=scope.watch, late=late)
            else:
                if kept:
                    recorder.judge_fault = self.checker.fault or self.checker.error
                opener = partial(opener_of, policies, recorder, self.checker)
                scope.enforcement = Enforcement(
                    mode=_effective(
                        mode, held=context.unjudged is None or parsed.late or is_refused(policies, context)
                    ),
                    recorder=recorder,
                    open_choice=opener(context, index),
                    expected=parsed.choices,
                    wants_usage=parsed.include_usage,
                    admit=None if late is None else admitting(late, opener),
                    regeneration=self._regeneration(policies, call, kept, mode, scope),
                )
            if parsed.stream:
                return self._stream(call, response, scope, scope.enforcement)
            return await self._collect(call, response, scope, scope.enforcement)

    # read

    def _open_recorder(self, call: GatewayRequest) -> RequestRecorder:
        parsed = call.parsed
        recorder = RequestRecorder(api=call.adapter.api, stream=parsed.stream, store_text=self.settings.store_text)
        recorder.model, recorder.agent, recorder.run_id = parsed.model, parsed.options.agent, parsed.options.run_id
        recorder.key_prefix = call.key.prefix if call.key is not None else None
        recorder.prompt = call.adapter.prompt_text(parsed.body)
        structlog.contextvars.bind_contextvars(request_id=recorder.request_id)
        return recorder

    async def _join(self, call: GatewayRequest, recorder: RequestRecorder) -> JoinedRun | None:
        """The run that the request is a part of: it rules, and what the request finds is added to it."""
        if self.runs is None:
            return None
        run = await self.runs.join(recorder.run_id, agent=recorder.agent, key=call.key)
        if run is not None:
            recorder.agent = run.agent
        return run

    # retrieval decision

    def _retrieve(self, policies: PolicySet, parsed: ParsedRequest, recorder: RequestRecorder) -> CombinedDecision:
        ruling = policies.evaluate_documents(PolicyInputs(chunks=parsed.chunks, injectable=parsed.injectable))
        recorder.decisions.extend(ruling.decisions)
        recorder.injectable = parsed.injectable
        recorder.keep_documents(parsed.chunks, ruling.dropped)
        if ruling.action is Action.BLOCK:
            recorder.block(http_status=PolicyBlockedError.status)
            blocking = next(decision for decision in ruling.decisions if decision.action is Action.BLOCK)
            index = ruling.cause.metadata.get("document_index") if ruling.cause else None
            raise PolicyBlockedError(
                blocking.reason,
                type="retrieval_policy_violation",
                code=ruling.cause.reason_code if ruling.cause else blocking.reason_code,
                param="documents" if index is None else parsed.path_of(index),
                violations=[decision_to_dict(decision) for decision in ruling.decisions],
            )
        return ruling

    async def _compare(
        self, policies: PolicySet, ruling: CombinedDecision, parsed: ParsedRequest, recorder: RequestRecorder
    ) -> CombinedDecision:
        """Hold the documents used against each other, where a policy wants that: the ruling with what came of it. Such
        a conflict is only warned of, so that the request waits for it no longer than the settings say."""
        used = [replace(chunk, text="") if i in ruling.dropped else chunk for i, chunk in enumerate(parsed.chunks)]
        if not policies.checks_conflicts or len(used) - len(ruling.dropped) < 2:
            return ruling
        comparing = self.checker.consistency_checker
        found = (
            await comparing.documents(used, timeout_s=self.settings.conflicts_timeout_ms / 1e3)
            if comparing is not None
            else Consistency(reason="unavailable")
        )
        recorder.conflicts = found
        ruling = policies.evaluate_documents(
            PolicyInputs(chunks=parsed.chunks, injectable=parsed.injectable, conflicts=found)
        )
        recorder.decisions = list(ruling.decisions)
        recorder.withheld += found.texts
        return ruling

    def _mode(self, policies: PolicySet, parsed: ParsedRequest, kept: Sequence[Chunk]) -> Mode:
        """When text may leave. A unary reply leaves when it is complete, so all of it is decided first."""
        if not policies.in_category("grounding") and not ((kept or parsed.late) and self.settings.annotate_by_default):
            return Mode.UNTOUCHED
        return Mode(policies.grounding_settings.stream_mode) if parsed.stream else Mode.FINAL

    def _judges(self, wanted: bool, kept: Sequence[Chunk]) -> bool:
        # A judge that has not been loaded yet is loaded on first use; one that failed to load stays out.
        return wanted and bool(kept) and self.checker.error is None

    def _context(
        self,
        ruling: CombinedDecision,
        parsed: ParsedRequest,
        kept: Sequence[Chunk],
        mode: Mode,
        earlier: Sequence[Claim],
    ) -> ReplyContext:
        available = self.checker.available
        unjudged = ReplyVerdict.NO_SOURCES if not kept else None if available else ReplyVerdict.NOT_CHECKED
        return ReplyContext(
            options=parsed.options,
            chunks=kept,
            names=DocumentNames(kept),
            positions=[index for index in range(len(parsed.chunks)) if index not in ruling.dropped],
            injectable=parsed.injectable,
            strippable=mode is not Mode.LIVE and not parsed.is_json,
            retrieval=retrieval_summary(parsed.chunks, ruling.dropped, ruling.decisions, parsed.notes),
            retrieval_decisions=ruling.decisions,
            unjudged=unjudged,
            judge_unavailable=bool(kept) and not available,
            judge_name=self.checker.name if available else None,
            expected=parsed.choices or 1,
            store_text=self.settings.store_text,
            final_checks=self.final_checks,
            earlier=earlier,
            is_json=parsed.is_json,
            asked=question_of(parsed.query) if parsed.query else asked_in(parsed.body),
        )

    def _late(
        self,
        ruling: CombinedDecision,
        call: GatewayRequest,
        kept: Sequence[Chunk],
        mode: Mode,
        recorder: RequestRecorder,
        earlier: Sequence[Claim],
    ) -> Late:
        """Takes in documents that come with the reply: evidence beside the request's for the choices after them. Those
        of a collection that the key is not for are none."""
        parsed, key = call.parsed, call.key

        async def take(documents: Sequence[Chunk]) -> tuple[ReplyContext, Any]:
            nonlocal parsed, kept
            if key is not None:
                documents = [document for document in documents if key.permits(document, unnamed=True)]
            parsed = parsed.with_chunks(documents, [f"output:{chunk.id}" for chunk in documents])
            kept = (*kept, *documents)
            recorder.keep_documents(parsed.chunks, ruling.dropped, late=recorder.late + len(documents))
            index = await self.checker.prepare(kept) if self._judges(mode is not Mode.UNTOUCHED, kept) else None
            return self._context(ruling, parsed, kept, mode, earlier), index

        return take

    # upstream

    async def _send(self, call: GatewayRequest, kept: Sequence[Chunk], scope: RequestScope) -> Response:
        scope.recorder.start_upstream()
        sent = await self.upstream.send(upstream_request(call, kept))
        scope.hold(sent.response)
        scope.recorder.mark("upstream_answered")
        scope.recorder.sent_model = sent.model
        return sent.response

    def _regeneration(
        self, policies: PolicySet, call: GatewayRequest, kept: Sequence[Chunk], mode: Mode, scope: RequestScope
    ) -> Regeneration | None:
        """The means to ask the upstream once more, from what stands of its reply; None: no policy wants that."""
        limit = policies.grounding_settings.max_regenerations
        adapter, parsed = call.adapter, call.parsed
        if not limit or mode is Mode.UNTOUCHED:
            return None
        if not isinstance(adapter, ResumableAdapter):
            return Regeneration.unavailable_for("api")
        if mode is Mode.LIVE or parsed.is_json:
            return Regeneration.unavailable_for("json" if parsed.is_json else "live")

        async def send(turn: Continuation) -> FurtherReply | None:
            response = (await self.upstream.send(upstream_request(call, kept, turn))).response
            scope.hold(response)
            if not response.is_success:
                return None
            kind = _content_type(response)
            events = adapter.resumed(self._reply(response), kind, scope.recorder, turn.frame)
            return FurtherReply(events=events, end_earlier=scope.end_earlier)

        return Regeneration(limit=limit, unavailable=adapter.not_resumable(parsed.body), send=send)

    async def _pass_error(self, response: Response, scope: RequestScope) -> GatewayResponse:
        """The upstream refuses: its status and body are the client's."""
        body = await self._read(response, scope)
        scope.recorder.fail("upstream_error", f"upstream answered {response.status_code}")
        scope.recorder.http_status = response.status_code
        await scope.record()
        return GatewayResponse(status=response.status_code, headers=self._headers(response, scope.recorder), body=body)

    # reply

    def _stream(
        self, call: GatewayRequest, response: Response, scope: RequestScope, enforcement: Enforcement | Passage
    ) -> GatewayResponse:
        events = call.adapter.events(self._reply(response), _content_type(response), scope.recorder)
        stream = ReplyStream(call.adapter, scope, enforcement.run(events))
        headers = [
            *((name, value) for name, value in self._headers(response, scope.recorder) if name not in _STREAM_HEADERS),
            ("content-type", "text/event-stream; charset=utf-8"),
            ("cache-control", "no-cache"),
            ("x-accel-buffering", "no"),
        ]
        held = enforcement.mode is not Mode.UNTOUCHED
        return GatewayResponse(status=response.status_code, headers=headers, stream=stream, held=held)

    async def _collect(
        self, call: GatewayRequest, response: Response, scope: RequestScope, enforcement: Enforcement | Passage
    ) -> GatewayResponse:
        recorder = scope.recorder
        body = await self._read(response, scope)
        kind = "application/json" if body.lstrip()[:1] == b"{" else _content_type(response)
        events = call.adapter.events(_once(body), kind, recorder)
        async with aclosing(enforcement.run(events)) as run:
            outputs = [output async for output in run]
        headers = self._headers(response, recorder)
        refused = next((output for output in outputs if isinstance(output, ReplyRefusal)), None)
        if refused is not None:
            recorder.block(http_status=PolicyBlockedError.status)
            raise PolicyBlockedError(
                refused.reason,
                type="grounding_policy_violation",
                code=refused.reason_code,
                param=None,
                violations=refused.decisions,
            )
        governed = enforcement.mode is not Mode.UNTOUCHED
        broken = next((output for output in outputs if isinstance(output, ReplyError) and output.broken), None)
        if broken is not None and governed:
            raise UpstreamConnectError(broken.message)
        if governed or not _is_json(response):
            body = call.adapter.collect(body, outputs)
            headers = [(name, value) for name, value in headers if name != "content-type"]
            headers.append(("content-type", "application/json"))
        await scope.record()
        return GatewayResponse(status=response.status_code, headers=[*headers, *_verdict_headers(recorder)], body=body)

    def _reply(self, response: Response) -> AsyncIterator[bytes]:
        """The bytes of a reply: of a stream as they come, and of one that is read whole no more than there may be."""
        data = decoded(response)
        return _within(self.settings.max_reply_bytes, data) if _is_json(response) else data

    async def _read(self, response: Response, scope: RequestScope) -> bytes:
        """The body of a reply, whole, so that its connection is free for another."""
        body = b"".join([data async for data in _within(self.settings.max_reply_bytes, decoded(response))])
        await scope.end_calls()
        return body

    def _headers(self, response: Response, recorder: RequestRecorder) -> Headers:
        return [*returned_headers(response, decoded=True), ("x-groundlane-request-id", recorder.request_id)]


_STREAM_HEADERS = frozenset({"content-type", "cache-control", "x-accel-buffering"})


def _with_tools(parsed: ParsedRequest, key: GatewayKey | None) -> ParsedRequest:
    """The request with what tools said. That need not be a document of any collection, but none of another's either."""
    parsed = parsed.with_tools()
    if key is not None:
        key.check_documents(parsed.chunks, parsed.path_of, unnamed=True)
    return parsed


def _effective(mode: Mode, *, held: bool) -> Mode:
    """Where nothing is judged there is no sentence to wait for: a held stream need not be held."""
    return Mode.LIVE if mode is Mode.HOLD and not held else mode


def _verdict_headers(recorder: RequestRecorder) -> Headers:
    headers = [("x-groundlane-action", recorder.action), ("x-groundlane-verdict", recorder.verdict)]
    if recorder.trust_score is not None:
        headers.append(("x-groundlane-trust-score", f"{recorder.trust_score:.4f}"))
    return headers


def _content_type(response: Response) -> str:
    return response.header("content-type") or ""


def _is_json(response: Response) -> bool:
    return "event-stream" not in _content_type(response)


async def _within(limit: int, data: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    length = 0
    async for piece in data:
        length += len(piece)
        if length > limit:
            raise UpstreamConnectError(f"The upstream's reply is longer than {limit} bytes.")
        yield piece


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
