"""Handles one governed request, from start to end: admit → retrieve → send → open_reply → deliver. Streamed and unary
requests take the same path. Every request writes exactly one event, whether it ends with a reply, a block, an error or
a disconnected client. The code that ends the request writes the event.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import httpx
import structlog
from msgspec import structs

from app.auth import GatewayKey
from app.errors import PolicyBlockedError, UpstreamConnectError
from app.events.recorder import RequestRecorder
from app.events.records import EventLog, RecordedRequest
from app.events.request_record import GoverningPolicies, RequestRecord
from app.gateway.choice_opener import (
    GovernedChoices,
    UntouchedChoices,
    late_documents,
    reply_context,
    shadow_check,
)
from app.gateway.request_lifetime import ReplyStream, RequestLifetime
from app.gateway.retrieval import Admission, Retrieval, compare_documents, decide_documents, is_blocked
from app.gateway.types import GatewayRequest, GatewayResponse
from app.gateway.upstream_call import (
    OneBody,
    content_type,
    is_json,
    once,
    regeneration,
    reply_bytes,
    upstream_request,
    whole,
)
from app.protocols.common.known_errors import known_error_body
from app.protocols.common.known_fields import REASONING, TOOL_CALLS, UNREAD, KnownFields
from app.protocols.common.stream_events import Output, ReplyError, ReplyRefusal
from app.protocols.documents import ParsedRequest
from app.protocols.documents.parsed_request import title_in
from app.protocols.empty_replies import empty_reply
from app.reply.checks.final_checks import FinalCheck
from app.reply.reader_output import Mode
from app.reply.stream_guard import GuardOptions, StreamGuard
from app.runs.run_service import JoinedRun, RunService
from app.settings import Settings, StoreText
from app.upstream import Headers, UpstreamClient, decoded, returned_headers
from judges.checker import GroundingChecker
from judges.concurrency import MAX_INLINE_REPLY_CHARS, FreedInSteps
from judges.concurrency import run as run_off_loop
from policies.policy_selection import PolicyEngine, PolicySet, ReplySettings


class Admitter(Protocol):
    """Checks and counts usage against the limits of a key and an agent."""

    async def admit(self, *, key_prefix: str | None, agent: str | None, model: str | None) -> None:
        """Count a request. Raises BudgetError or UncountedError."""
        ...


class PolicySource(Protocol):
    """Provides the policies in force."""

    @property
    def engine(self) -> PolicyEngine: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Handles governed requests. There is one instance per process. ``observers`` receive every record. If ``runs`` is
    None, the id of a run is only a label. ``on_dropped_field`` is called for each field that is left out of a reply,
    with the API and the name of the field."""

    settings: Settings
    upstream: UpstreamClient
    policies: PolicySource
    checker: GroundingChecker
    events: EventLog
    observers: Sequence[Callable[[RecordedRequest], None]] = field(default_factory=tuple)
    final_checks: Sequence[FinalCheck] = ()
    runs: RunService | None = None
    budgets: Admitter | None = None
    on_dropped_field: Callable[[str, str], None] = lambda _api, _field: None

    async def respond(self, request: GatewayRequest) -> GatewayResponse:
        """Handle a request. Raises GatewayError after writing the event. Cancelling the call releases all resources."""
        scope = RequestLifetime(recorder=self._open_recorder(request), events=self.events, observers=self.observers)
        async with scope:
            admitted = await self._admit(request, scope)
            retrieval = await self._retrieve(admitted, scope)
            response = await self._send(retrieval, scope)
            if not response.is_success:
                return await self._relay_error(retrieval, response, scope)
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
            question=title_in(parsed.body, parsed.query) if self.settings.store_text is StoreText.FULL else "",
        )
        structlog.contextvars.bind_contextvars(request_id=recorder.request_id)
        return recorder

    async def _admit(self, request: GatewayRequest, scope: RequestLifetime) -> Admission:
        """Check the key's limits, join the run, and select the policies in scope."""
        key, parsed, recorder = request.key, request.parsed, scope.recorder
        if key is not None:
            key.check_body(parsed.body)
            key.check_query(request.query)
            key.check_headers(request.headers)
            key.check_documents(parsed.chunks, parsed.path_of)
        run = scope.run = await self._join_run(key, recorder)
        info, engine = recorder.info, self.policies.engine if run is None else run.engine
        if self.budgets is not None:
            await self.budgets.admit(key_prefix=info.key_prefix, agent=info.agent, model=info.model)
        policies = engine.in_scope(
            agent=info.agent,
            model=self.upstream.names_of(info.model),
            key=key.names if key is not None else None,
            unit=info.request_id if run is None else info.run_id,
        )
        always, wanted = self.settings.evidence_from_tools, policies.reply_settings.evidence_from_tools
        tools = None if always or parsed.from_tools is None else wanted
        recorder.governing = GoverningPolicies(policies=policies, tools=tools)
        if always or wanted:
            parsed = _with_tools(parsed, key)
        elif parsed.late:
            parsed = structs.replace(parsed, late=False)
        if parsed is not request.parsed:
            request = structs.replace(request, parsed=parsed)
        if policies.governs_reply:
            fields = self._known_fields(request, policies.reply_settings)
            recorder.dropped = fields.dropped
            request = structs.replace(request, adapter=request.adapter.restricted(fields))
        return Admission(request=request, policies=policies)

    def _known_fields(self, request: GatewayRequest, settings: ReplySettings) -> KnownFields:
        """Return the tables of known fields from which a reply under a grounding policy is rebuilt."""
        keep = (self.settings.keep_fields or "").replace(",", " ").split()
        judges = settings.reasoning_action == "judge"
        # If a policy requires reasoning to be judged, reasoning in separate fields that can't be judged is left out.
        judged = judges and request.adapter.judges_reasoning and not request.parsed.is_json
        drop = {REASONING} if settings.reasoning_action == "drop" or (judges and not judged) else set()
        if settings.tool_call_action == "drop":
            drop.add(TOOL_CALLS)
        if settings.withholds_unjudged:
            drop.add(UNREAD)
        return KnownFields(
            keep=keep,
            drop=drop,
            judges_reasoning=judged,
            request=request.parsed.body,
            observe=partial(self.on_dropped_field, request.adapter.api),
        )

    async def _join_run(self, key: GatewayKey | None, recorder: RequestRecorder) -> JoinedRun | None:
        """Return the run that the request belongs to. The policies of the run apply to the request, and findings on the
        request are added to the run.
        """
        if self.runs is None:
            return None
        run = await self.runs.join(recorder.info.run_id, agent=recorder.info.agent, key=key)
        if run is not None:
            recorder.name_agent(run.agent)
        return run

    # Retrieve

    async def _retrieve(self, admitted: Admission, scope: RequestLifetime) -> Retrieval:
        """Apply the retrieval policies to the documents, and start preparing evidence from the documents that are kept.
        Raises PolicyBlockedError.
        """
        policies, parsed, recorder = admitted.policies, admitted.request.parsed, scope.recorder
        decision = await decide_documents(policies, parsed, recorder)
        kept = tuple(chunk for index, chunk in enumerate(parsed.chunks) if index not in decision.dropped)
        mode = self._mode(policies, parsed)
        shadowed = mode is Mode.UNTOUCHED and bool(kept) and PolicySet(policies.shadow).governs_reply
        judged = shadowed or mode is not Mode.UNTOUCHED
        # If the judge isn't loaded yet, it is loaded on first use. If an earlier attempt to load it failed, requests
        # don't wait for the next attempt.
        self.checker.retry()
        can_judge = bool(kept) and self.checker.error is None
        recorder.judging = policies.reply_settings.judging if judged else None
        evidence = scope.tasks.start(self.checker.prepare(kept)) if judged and can_judge else None
        decision = await compare_documents(
            policies,
            decision,
            parsed,
            recorder,
            checker=self.checker,
            timeout_s=self.settings.conflicts_timeout_ms / 1e3,
        )
        wants_earlier = scope.run is not None and policies.reply_settings.consistency_check
        forwarded = parsed.drop(decision.dropped)
        return Retrieval(
            admitted=admitted,
            forwarded=admitted.request if forwarded is parsed else structs.replace(admitted.request, parsed=forwarded),
            kept=kept,
            decision=decision,
            mode=mode,
            shadowed=shadowed,
            blocked=mode is not Mode.UNTOUCHED and is_blocked(policies, parsed, kept, judged=can_judge),
            evidence=evidence,
            earlier=await scope.run.claims() if scope.run is not None and wants_earlier else (),
        )

    def _mode(self, policies: PolicySet, parsed: ParsedRequest) -> Mode:
        """Return the mode, which determines when text is released. A unary reply is sent only when it is complete, so
        the policies decide on all of it first."""
        annotates = self.settings.annotate_by_default and (parsed.chunks or parsed.late)
        if not annotates and not policies.governs_reply:
            return Mode.UNTOUCHED
        return Mode(policies.reply_settings.stream_mode) if parsed.stream else Mode.FINAL

    # Send

    async def _send(self, retrieval: Retrieval, scope: RequestLifetime) -> httpx.Response:
        """Call the upstream. If the policies would block every possible reply, return an empty reply without a call."""
        recorder = scope.recorder
        if retrieval.blocked:
            parsed = retrieval.forwarded.parsed
            body = empty_reply(retrieval.forwarded.adapter.api, model=parsed.model, choices=parsed.choices or 1)
            return httpx.Response(200, headers={"content-type": "application/json"}, stream=OneBody(body))
        recorder.timings.mark("upstream_asked")
        request = upstream_request(retrieval.forwarded, retrieval.kept, usage=recorder.usage)
        try:
            sent = await self.upstream.send(request)
        except UpstreamConnectError:
            recorder.usage.prompt_chars = None
            raise
        scope.hold(sent.response)
        recorder.timings.mark("upstream_answered")
        recorder.sent_model = sent.model
        return sent.response

    async def _relay_error(
        self, retrieval: Retrieval, response: httpx.Response, scope: RequestLifetime
    ) -> GatewayResponse:
        """Forward an error that the upstream returned. The client receives its status and body. Under a grounding
        policy, it receives only the known error fields of the body.
        """
        scope.recorder.usage.prompt_chars = None
        body = await self._read(response, scope)
        status = response.status_code
        headers = _headers(response, scope)
        if retrieval.admitted.policies.governs_reply:
            adapter = retrieval.forwarded.adapter
            body = known_error_body(
                body, status, adapter.api, KnownFields(observe=partial(self.on_dropped_field, adapter.api))
            )
            headers = _headers(response, scope, _JSON_HEADERS)
        scope.recorder.fail("upstream_error", f"upstream answered {status}", http_status=status)
        await scope.record()
        return GatewayResponse(status=status, headers=headers, body=body)

    # Open the reply

    async def _open_reply(self, retrieval: Retrieval, scope: RequestLifetime) -> StreamGuard:
        """Decide how to guard the reply once it has begun."""
        recorder, parsed, mode = scope.recorder, retrieval.admitted.request.parsed, retrieval.mode
        policies = retrieval.admitted.policies
        evidence = await retrieval.evidence if retrieval.evidence is not None else None
        context = reply_context(
            retrieval,
            parsed,
            retrieval.kept,
            request_id=recorder.request_id,
            checker=self.checker,
            final_checks=self.final_checks,
        )
        late = late_documents(retrieval, recorder, self.checker, self.final_checks) if parsed.late else None
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
            # The reply isn't judged, so its sentences need not be held. Under a policy, the decision is made on the
            # whole reply. Without a policy, text is released immediately.
            mode = Mode.FINAL if policies.governs_reply else Mode.LIVE
        options = GuardOptions(
            mode=mode,
            expected=parsed.choices,
            max_bytes=int(self.settings.max_reply_mb * _MB) if policies.governs_reply else None,
            holds_calls=policies.reply_settings.tool_call_action == "hold",
            reasoning=policies.reply_settings.reasoning_action,
            streams=parsed.stream,
            wants_usage=parsed.include_usage,
            regeneration=regeneration(retrieval, scope, self.upstream, max_bytes=self.settings.max_reply_bytes),
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

    # Deliver

    async def _deliver(
        self, retrieval: Retrieval, response: httpx.Response, guard: StreamGuard, scope: RequestLifetime
    ) -> GatewayResponse:
        request, dropped = retrieval.forwarded, retrieval.decision.dropped
        if request.parsed.stream:
            data = reply_bytes(response, self.settings.max_reply_bytes)
            events = request.adapter.decode(data, content_type(response), dropped=dropped)
            return GatewayResponse(
                status=response.status_code,
                headers=_headers(response, scope, _STREAM_HEADERS),
                stream=ReplyStream(request.adapter.encode, scope, guard.run(events)),
                held=guard.mode is not Mode.UNTOUCHED,
            )
        body = await self._read(response, scope)
        form = "application/json" if body.lstrip()[:1] == b"{" else content_type(response)
        events = request.adapter.decode(once(body), form, dropped=dropped)
        async with aclosing(guard.run(events)) as released:
            outputs = FreedInSteps([output async for output in released])
        governed = guard.mode is not Mode.UNTOUCHED
        _raise_failure(outputs, scope.recorder, governed=governed)
        ours = {}
        if governed or not is_json(response):
            body = await run_off_loop(len(body) <= MAX_INLINE_REPLY_CHARS, request.adapter.collect, body, outputs)
            ours = _JSON_HEADERS
        record = await scope.record()
        headers = _headers(response, scope, ours)
        return GatewayResponse(status=response.status_code, headers=[*headers, *_verdict_headers(record)], body=body)

    async def _read(self, response: httpx.Response, scope: RequestLifetime) -> bytes:
        """Read the whole body of a reply, so that the connection can be reused."""
        body = await whole(self.settings.max_reply_bytes, decoded(response))
        await scope.end_calls()
        return body


_MB = 1_000_000
_JSON_HEADERS = {"content-type": "application/json"}
_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


def _with_tools(parsed: ParsedRequest, key: GatewayKey | None) -> ParsedRequest:
    """Return the request with tool results among its documents. A tool result need not name a collection. If it does,
    the key must allow that collection."""
    parsed = parsed.with_tools()
    if key is not None:
        key.check_documents(parsed.chunks, parsed.path_of, unnamed=True)
    return parsed


def _raise_failure(outputs: Sequence[Output], recorder: RequestRecorder, *, governed: bool) -> None:
    """Raise the refusal in a whole reply, if there is one, or the error that interrupted a governed reply."""
    for output in outputs:
        if isinstance(output, ReplyRefusal):
            recorder.block(http_status=PolicyBlockedError.status)
            raise PolicyBlockedError(
                output.reason,
                type="grounding_policy_violation",
                code=output.reason_code,
                param=None,
                violations=output.decisions,
            )
    for output in outputs:
        if governed and isinstance(output, ReplyError) and output.broken:
            raise UpstreamConnectError(output.message)


def _headers(response: httpx.Response, scope: RequestLifetime, ours: Mapping[str, str] = {}) -> Headers:
    """Return the headers of the upstream, except those that ``ours`` replace."""
    theirs = [header for header in returned_headers(response, read=True) if header[0] not in ours]
    return [*theirs, ("x-groundlane-request-id", scope.recorder.request_id), *ours.items()]


def _verdict_headers(record: RequestRecord) -> Headers:
    headers = [("x-groundlane-action", record.action), ("x-groundlane-verdict", record.reply.verdict)]
    if record.reply.trust_score is not None:
        headers.append(("x-groundlane-trust-score", f"{record.reply.trust_score:.4f}"))
    return headers
