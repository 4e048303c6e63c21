"""The story of one governed request, from top to bottom.

    admit → retrieve → send → open_reply → deliver

Streamed and unary requests take the same path. However a request ends (a reply, a block, an error, a client that went
away), exactly one event is written, by whoever ended it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import httpx
import structlog
from msgspec import Struct, structs

from app.auth import GatewayKey
from app.errors import PolicyBlockedError, UpstreamConnectError
from app.events.recorder import RequestRecorder
from app.events.records import EventLog, RecordedRequest
from app.events.request_record import GoverningPolicies, RequestRecord, RetrievalOutcome
from app.gateway.choice_opener import GovernedChoices, LateDocuments, UntouchedChoices, shadow_check
from app.gateway.request_scope import ReplyStream, RequestScope
from app.gateway.types import GatewayRequest, GatewayResponse, ResumableAdapter
from app.gateway.upstream_request import upstream_request
from app.protocols.common.known_fields import REASONING, TOOL_CALLS, KnownFields
from app.protocols.common.stream_events import Continuation, Output, ReplyError, ReplyRefusal
from app.protocols.documents import ParsedRequest
from app.protocols.documents.question import asked_in, question_of, written_by_user
from app.protocols.empty_replies import empty_reply
from app.reply.checks.final_checks import FinalCheck
from app.reply.context import ReplyContext
from app.reply.grounding_object import retrieval_summary
from app.reply.reader import Mode
from app.reply.regeneration import FurtherReply, Regeneration
from app.reply.stream_guard import GuardOptions, StreamGuard
from app.runs.run_service import JoinedRun, RunService
from app.settings import Settings
from app.upstream import Headers, UpstreamClient, decoded, returned_headers
from judges.checker import GroundingChecker
from judges.concurrency import MAX_INLINE_REPLY_CHARS
from judges.concurrency import run as run_off_loop
from judges.evidence.index import EvidenceIndex
from judges.types import Chunk, Claim, Consistency, ReplyVerdict
from policies.citations.document_names import DocumentNames
from policies.citations.extraction import reported_citations
from policies.engine import CombinedDecision, GroundingSettings, PolicyEngine, PolicySet, decision_to_dict
from policies.replay import JudgeOptions
from policies.types import Action, PolicyInputs


class PolicySource(Protocol):
    """Where the policies in force come from."""

    @property
    def engine(self) -> PolicyEngine: ...


class Admission(Struct, frozen=True, kw_only=True):
    """A request that its key may make, and the policies in scope of it."""

    request: GatewayRequest
    policies: PolicySet


class Retrieval(Struct, frozen=True, kw_only=True):
    """What the retrieval policies left of a request.

    ``forwarded`` is the request without the documents that they dropped; ``kept`` are the others, and ``evidence`` is
    being made of them if a judge is to look at the reply. ``shadowed``: only shadow policies have it judged.
    ``blocked``: the reply is blocked before it is written. ``earlier`` are claims of earlier replies of the run.
    """

    admitted: Admission
    forwarded: GatewayRequest
    kept: tuple[Chunk, ...]
    decision: CombinedDecision
    mode: Mode
    shadowed: bool
    blocked: bool
    evidence: "asyncio.Task[EvidenceIndex] | None"
    earlier: Sequence[Claim]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """One per process. ``observers`` get every record written; without ``runs``, a run's id is only a name.

    ``on_dropped_field`` gets the API and the name of each field that is left out of a reply.
    """

    settings: Settings
    upstream: UpstreamClient
    policies: PolicySource
    checker: GroundingChecker
    events: EventLog
    observers: Sequence[Callable[[RecordedRequest], None]] = field(default_factory=tuple)
    final_checks: Sequence[FinalCheck] = ()
    runs: RunService | None = None
    on_dropped_field: Callable[[str, str], None] = lambda _api, _field: None

    async def respond(self, request: GatewayRequest) -> GatewayResponse:
        """Answer a request. Raises GatewayError, with the event written; cancelling it ends everything."""
        scope = RequestScope(recorder=self._open_recorder(request), events=self.events, observers=self.observers)
        async with scope:
            admitted = await self._admit(request, scope)
            retrieval = await self._retrieve(admitted, scope)
            response = await self._send(retrieval, scope)
            if not response.is_success:
                return await self._relay_error(response, scope)
            guard = scope.guard = await self._open_reply(retrieval, scope)
            return await self._deliver(retrieval, response, guard, scope)

    # Admit

    def _open_recorder(self, request: GatewayRequest) -> RequestRecorder:
        parsed = request.parsed
        recorder = RequestRecorder(
            api=request.adapter.api,
            store_text=self.settings.store_text,
            stream=parsed.stream,
            model=parsed.model,
            agent=parsed.options.agent,
            run_id=parsed.options.run_id,
            key_prefix=request.key.prefix if request.key is not None else None,
            prompt=request.adapter.prompt_text(parsed.body),
        )
        structlog.contextvars.bind_contextvars(request_id=recorder.request_id)
        return recorder

    async def _admit(self, request: GatewayRequest, scope: RequestScope) -> Admission:
        """Check what the key allows, join the run, and find the policies in scope."""
        key, parsed, recorder = request.key, request.parsed, scope.recorder
        if key is not None:
            key.check_body(parsed.body)
            key.check_documents(parsed.chunks, parsed.path_of)
        run = scope.run = await self._join_run(key, recorder)
        info, engine = recorder.info, self.policies.engine if run is None else run.engine
        policies = engine.in_scope(
            agent=info.agent, model=info.model, key=request.key_names, unit=info.run_id or info.request_id
        )
        always, wanted = self.settings.evidence_from_tools, policies.grounding_settings.evidence_from_tools
        tools = None if always or parsed.from_tools is None else wanted
        recorder.governing = GoverningPolicies(policies=policies, tools=tools)
        if always or wanted:
            parsed = _with_tools(parsed, key)
        elif parsed.late:
            parsed = structs.replace(parsed, late=False)
        if parsed is not request.parsed:
            request = structs.replace(request, parsed=parsed)
        if policies.in_category("grounding"):
            fields = self._known_fields(request, policies.grounding_settings)
            recorder.dropped = fields.dropped
            request = structs.replace(request, adapter=request.adapter.restricted(fields))
        return Admission(request=request, policies=policies)

    def _known_fields(self, request: GatewayRequest, settings: GroundingSettings) -> KnownFields:
        """What a reply under a grounding policy is written from."""
        keep = (self.settings.keep_fields or "").replace(",", " ").split()
        # Reasoning in fields of its own has no place among the judged sentences: what is not to pass is left out.
        drop = {REASONING} if settings.reasoning_action != "pass" else set()
        if settings.tool_call_action == "drop":
            drop.add(TOOL_CALLS)
        return KnownFields(keep=keep, drop=drop, observe=partial(self.on_dropped_field, request.adapter.api))

    async def _join_run(self, key: GatewayKey | None, recorder: RequestRecorder) -> JoinedRun | None:
        """The run that the request belongs to: its policies govern the request, whose findings are added to it."""
        if self.runs is None:
            return None
        run = await self.runs.join(recorder.info.run_id, agent=recorder.info.agent, key=key)
        if run is not None:
            recorder.name_agent(run.agent)
        return run

    # Retrieve

    async def _retrieve(self, admitted: Admission, scope: RequestScope) -> Retrieval:
        """Have the retrieval policies decide about the documents, and begin to make evidence of those that they keep.

        Raises PolicyBlockedError.
        """
        policies, parsed, recorder = admitted.policies, admitted.request.parsed, scope.recorder
        decision = self._decide_documents(policies, parsed, recorder)
        kept = tuple(chunk for index, chunk in enumerate(parsed.chunks) if index not in decision.dropped)
        mode = self._mode(policies, parsed, kept)
        shadowed = mode is Mode.UNTOUCHED and bool(kept) and bool(PolicySet(policies.shadow).in_category("grounding"))
        judged = shadowed or mode is not Mode.UNTOUCHED
        recorder.judging = JudgeOptions.of(policies.grounding_settings) if judged else None
        evidence = scope.tasks.start(self.checker.prepare(kept)) if judged and self._can_judge(kept) else None
        decision = await self._compare_documents(policies, decision, parsed, recorder)
        wants_earlier = scope.run is not None and policies.grounding_settings.consistency_check
        forwarded = parsed.drop(decision.dropped)
        return Retrieval(
            admitted=admitted,
            forwarded=admitted.request if forwarded is parsed else structs.replace(admitted.request, parsed=forwarded),
            kept=kept,
            decision=decision,
            mode=mode,
            shadowed=shadowed,
            blocked=mode is not Mode.UNTOUCHED and self._is_blocked(policies, parsed, kept),
            evidence=evidence,
            earlier=await scope.run.claims() if scope.run is not None and wants_earlier else (),
        )

    def _decide_documents(
        self, policies: PolicySet, parsed: ParsedRequest, recorder: RequestRecorder
    ) -> CombinedDecision:
        decision = policies.evaluate_documents(PolicyInputs(chunks=parsed.chunks, injectable=parsed.injectable))
        recorder.retrieval = RetrievalOutcome(
            chunks=parsed.chunks,
            dropped=decision.dropped,
            injectable=parsed.injectable,
            decisions=decision.decisions,
        )
        if decision.action is not Action.BLOCK:
            return decision
        recorder.block(http_status=PolicyBlockedError.status)
        blocking = next(each for each in decision.decisions if each.action is Action.BLOCK)
        index = decision.cause.metadata.get("document_index") if decision.cause else None
        raise PolicyBlockedError(
            blocking.reason,
            type="retrieval_policy_violation",
            code=decision.cause.reason_code if decision.cause else blocking.reason_code,
            param="documents" if index is None else parsed.path_of(index),
            violations=[decision_to_dict(each) for each in decision.decisions],
        )

    async def _compare_documents(
        self, policies: PolicySet, decision: CombinedDecision, parsed: ParsedRequest, recorder: RequestRecorder
    ) -> CombinedDecision:
        """Compare the documents with each other, if a policy wants that, and decide again. A conflict is never more
        than a warning, so the request waits no longer than the settings allow."""
        dropped = decision.dropped
        used = [replace(chunk, text="") if i in dropped else chunk for i, chunk in enumerate(parsed.chunks)]
        if not policies.checks_conflicts or len(used) - len(dropped) < 2:
            return decision
        comparison = self.checker.consistency_checker
        found = (
            await comparison.documents(used, timeout_s=self.settings.conflicts_timeout_ms / 1e3)
            if comparison is not None
            else Consistency(reason="unavailable")
        )
        decision = policies.evaluate_documents(
            PolicyInputs(chunks=parsed.chunks, injectable=parsed.injectable, conflicts=found)
        )
        recorder.retrieval = structs.replace(recorder.retrieval, decisions=decision.decisions, conflicts=found)
        return decision

    def _is_blocked(self, policies: PolicySet, parsed: ParsedRequest, kept: Sequence[Chunk]) -> bool:
        """Whether what the caller reports, or what is missing, blocks the reply before the upstream is called."""
        reported = parsed.options.reported
        inputs = PolicyInputs(
            chunks=kept,
            injectable=parsed.injectable,
            final=False,
            judged=bool(kept) and self.checker.error is None,
            reported_scores=reported.grounding_scores,
            reported_unsupported=reported.unsupported_claims,
            output_confidence=reported.output_confidence,
            citations=reported_citations(reported.citations, kept),
            documents_may_follow=parsed.late,
        )
        return policies.blocked_before_call(inputs) is not None

    def _mode(self, policies: PolicySet, parsed: ParsedRequest, kept: Sequence[Chunk]) -> Mode:
        """When text is released. A unary reply leaves when it is complete, so all of it is decided on first."""
        if not policies.in_category("grounding") and not ((kept or parsed.late) and self.settings.annotate_by_default):
            return Mode.UNTOUCHED
        return Mode(policies.grounding_settings.effective_stream_mode) if parsed.stream else Mode.FINAL

    def _can_judge(self, kept: Sequence[Chunk]) -> bool:
        # A judge that is not loaded yet is loaded on first use; one that failed to load is not tried again.
        return bool(kept) and self.checker.error is None

    # Send

    async def _send(self, retrieval: Retrieval, scope: RequestScope) -> httpx.Response:
        """Call the upstream, unless what is known already blocks its reply, whatever it would be."""
        recorder = scope.recorder
        if retrieval.blocked:
            parsed = retrieval.forwarded.parsed
            body = empty_reply(retrieval.forwarded.adapter.api, model=parsed.model, choices=parsed.choices or 1)
            return httpx.Response(200, headers={"content-type": "application/json"}, stream=OneBody(body))
        recorder.timings.start_upstream()
        sent = await self.upstream.send(upstream_request(retrieval.forwarded, retrieval.kept))
        scope.hold(sent.response)
        recorder.timings.mark("upstream_answered")
        recorder.sent_model = sent.model
        return sent.response

    async def _relay_error(self, response: httpx.Response, scope: RequestScope) -> GatewayResponse:
        """The upstream refuses: the client gets its status and body."""
        body = await self._read(response, scope)
        status = response.status_code
        scope.recorder.fail("upstream_error", f"upstream answered {status}", http_status=status)
        await scope.record()
        return GatewayResponse(status=status, headers=_headers(response, scope), body=body)

    # Open the reply

    async def _open_reply(self, retrieval: Retrieval, scope: RequestScope) -> StreamGuard:
        """Decide how the reply is guarded, now that there is one."""
        recorder, parsed, mode = scope.recorder, retrieval.admitted.request.parsed, retrieval.mode
        policies = retrieval.admitted.policies
        evidence = await retrieval.evidence if retrieval.evidence is not None else None
        context = self._context(retrieval, parsed, retrieval.kept, recorder)
        late = self._late_documents(retrieval, recorder) if parsed.late else None
        if mode is Mode.UNTOUCHED:
            shadow = None
            if retrieval.shadowed and evidence is not None:
                shadow = shadow_check(policies, context, self.checker, evidence)
            return StreamGuard(
                options=GuardOptions(mode=mode, shadow_check=shadow),
                recorder=recorder,
                opener=UntouchedChoices(context, recorder.timings, late),
            )
        if mode is Mode.HOLD and context.unjudged is not None and not parsed.late:
            # Nobody judges the reply. Under a policy it is decided on as a whole; else there is nothing to wait for.
            mode = Mode.FINAL if policies.in_category("grounding") else Mode.LIVE
        options = GuardOptions(
            mode=mode,
            expected=parsed.choices,
            max_chars=int(self.settings.max_reply_mb * _MB) if policies.in_category("grounding") else None,
            holds_calls=policies.grounding_settings.tool_call_action == "hold",
            reasoning=policies.grounding_settings.reasoning_action,
            wants_usage=parsed.include_usage,
            regeneration=self._regeneration(retrieval, scope),
            judge_fault=self.checker.fault or self.checker.error if retrieval.kept else None,
        )
        choices = GovernedChoices(
            policies=policies,
            checker=self.checker,
            context=context,
            evidence=evidence,
            timings=recorder.timings,
            late=late,
        )
        return StreamGuard(options=options, recorder=recorder, opener=choices)

    def _context(
        self, retrieval: Retrieval, parsed: ParsedRequest, kept: Sequence[Chunk], recorder: RequestRecorder
    ) -> ReplyContext:
        decision, available = retrieval.decision, self.checker.available
        unjudged = ReplyVerdict.NO_SOURCES if not kept else None if available else ReplyVerdict.NOT_CHECKED
        return ReplyContext(
            request_id=recorder.request_id,
            options=parsed.options,
            chunks=kept,
            names=DocumentNames(kept),
            positions=[index for index in range(len(parsed.chunks)) if index not in decision.dropped],
            injectable=parsed.injectable,
            strippable=retrieval.mode is not Mode.LIVE and not parsed.is_json,
            retrieval=retrieval_summary(parsed.chunks, decision.dropped, decision.decisions, parsed.notes),
            retrieval_decisions=decision.decisions,
            unjudged=unjudged,
            judge_unavailable=bool(kept) and not available,
            judge_name=self.checker.name if available else None,
            expected=parsed.choices or 1,
            final_checks=self.final_checks,
            earlier=retrieval.earlier,
            is_json=parsed.is_json,
            asked=question_of(parsed.query) if parsed.query else asked_in(parsed.body),
            conversation=written_by_user(parsed.body, parsed.query),
        )

    def _late_documents(self, retrieval: Retrieval, recorder: RequestRecorder) -> LateDocuments:
        """Documents that come with the reply are evidence too, for the choices after them. Those of a collection that
        the key is not for are left out."""
        parsed, kept, key = retrieval.admitted.request.parsed, retrieval.kept, retrieval.admitted.request.key

        async def take(documents: Sequence[Chunk]) -> tuple[ReplyContext, EvidenceIndex | None]:
            nonlocal parsed, kept
            if key is not None:
                documents = [document for document in documents if key.permits(document, unnamed=True)]
            parsed = parsed.with_chunks(documents, [f"output:{chunk.id}" for chunk in documents])
            kept = (*kept, *documents)
            late = recorder.retrieval.late + len(documents)
            recorder.retrieval = structs.replace(recorder.retrieval, chunks=parsed.chunks, late=late)
            judged = retrieval.mode is not Mode.UNTOUCHED and self._can_judge(kept)
            evidence = await self.checker.prepare(kept) if judged else None
            return self._context(retrieval, parsed, kept, recorder), evidence

        return take

    def _regeneration(self, retrieval: Retrieval, scope: RequestScope) -> Regeneration | None:
        """The means to have the upstream continue its reply; None if no policy wants that."""
        request, limit = retrieval.forwarded, retrieval.admitted.policies.grounding_settings.max_regenerations
        adapter, parsed = request.adapter, request.parsed
        if not limit:
            return None
        if not isinstance(adapter, ResumableAdapter):
            return Regeneration.unavailable_for("api")
        if retrieval.mode is Mode.LIVE or parsed.is_json:
            return Regeneration.unavailable_for("json" if parsed.is_json else "live")

        async def send(continuation: Continuation) -> FurtherReply | None:
            sent = await self.upstream.send(upstream_request(request, retrieval.kept, continuation))
            response = sent.response
            scope.hold(response)
            if not response.is_success:
                return None
            body = self._body(response)
            events = adapter.decode_continued(body, _content_type(response), continuation.frame)
            return FurtherReply(events=events, end_earlier=lambda: scope.end_calls(leave=1))

        return Regeneration(limit=limit, unavailable=adapter.cannot_continue(parsed.body), send=send)

    # Deliver

    async def _deliver(
        self, retrieval: Retrieval, response: httpx.Response, guard: StreamGuard, scope: RequestScope
    ) -> GatewayResponse:
        request, dropped = retrieval.forwarded, retrieval.decision.dropped
        if request.parsed.stream:
            events = request.adapter.decode(self._body(response), _content_type(response), dropped=dropped)
            return GatewayResponse(
                status=response.status_code,
                headers=_stream_headers(_headers(response, scope)),
                stream=ReplyStream(request.adapter.encode, scope, guard.run(events)),
                held=guard.mode is not Mode.UNTOUCHED,
            )
        body = await self._read(response, scope)
        content_type = "application/json" if body.lstrip()[:1] == b"{" else _content_type(response)
        events = request.adapter.decode(_once(body), content_type, dropped=dropped)
        async with aclosing(guard.run(events)) as released:
            outputs = [output async for output in released]
        headers = _headers(response, scope)
        _raise_refusal(outputs, scope.recorder)
        governed = guard.mode is not Mode.UNTOUCHED
        if governed:
            _raise_break(outputs)
        if governed or not _is_json(response):
            body = await run_off_loop(len(body) <= MAX_INLINE_REPLY_CHARS, request.adapter.collect, body, outputs)
            headers = [(name, value) for name, value in headers if name != "content-type"]
            headers.append(("content-type", "application/json"))
        record = await scope.record()
        return GatewayResponse(status=response.status_code, headers=[*headers, *_verdict_headers(record)], body=body)

    def _body(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """The bytes of a reply: a stream's as they come, a whole reply's up to the limit."""
        data = decoded(response)
        return _within(self.settings.max_reply_bytes, data) if _is_json(response) else data

    async def _read(self, response: httpx.Response, scope: RequestScope) -> bytes:
        """The whole body of a reply, so that its connection is free for another."""
        body = b"".join([data async for data in _within(self.settings.max_reply_bytes, decoded(response))])
        await scope.end_calls()
        return body


class OneBody(httpx.AsyncByteStream):
    """A body that is there as a whole."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body


_MB = 1_000_000
_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


def _with_tools(parsed: ParsedRequest, key: GatewayKey | None) -> ParsedRequest:
    """The request with the results of tools among its documents. They need not name a collection, but must not name one
    that the key is not for."""
    parsed = parsed.with_tools()
    if key is not None:
        key.check_documents(parsed.chunks, parsed.path_of, unnamed=True)
    return parsed


def _raise_refusal(outputs: Sequence[Output], recorder: RequestRecorder) -> None:
    refusal = next((output for output in outputs if isinstance(output, ReplyRefusal)), None)
    if refusal is None:
        return
    recorder.block(http_status=PolicyBlockedError.status)
    raise PolicyBlockedError(
        refusal.reason,
        type="grounding_policy_violation",
        code=refusal.reason_code,
        param=None,
        violations=refusal.decisions,
    )


def _raise_break(outputs: Sequence[Output]) -> None:
    broken = next((output for output in outputs if isinstance(output, ReplyError) and output.broken), None)
    if broken is not None:
        raise UpstreamConnectError(broken.message)


def _headers(response: httpx.Response, scope: RequestScope) -> Headers:
    return [*returned_headers(response, read=True), ("x-groundlane-request-id", scope.recorder.request_id)]


def _stream_headers(headers: Headers) -> Headers:
    return [*((name, value) for name, value in headers if name not in _STREAM_HEADERS), *_STREAM_HEADERS.items()]


def _verdict_headers(record: RequestRecord) -> Headers:
    headers = [("x-groundlane-action", record.action), ("x-groundlane-verdict", record.reply.verdict)]
    if record.reply.trust_score is not None:
        headers.append(("x-groundlane-trust-score", f"{record.reply.trust_score:.4f}"))
    return headers


def _content_type(response: httpx.Response) -> str:
    kind: str = response.headers.get("content-type", "")
    return kind


def _is_json(response: httpx.Response) -> bool:
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
