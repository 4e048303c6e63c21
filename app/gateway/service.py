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
from app.events.recorder import Trace
from app.events.records import EventLog, RequestEvent
from app.gateway.open_choices import admitting, is_refused, opener_of, watch
from app.gateway.request_scope import Exchange
from app.gateway.types import Call, Reply, ReplyStream, Resumable
from app.gateway.upstream_request import upstream_request
from app.protocols.common.stream_events import Failure, Refused, Turn
from app.protocols.documents import Intake
from app.protocols.documents.question import asked_in, question_of
from app.reply.context import Terms
from app.reply.final_checks import Inquiry
from app.reply.grounding_object import retrieval_summary
from app.reply.passthrough import Late, Passage
from app.reply.regeneration import Again, Regeneration
from app.reply.stream_guard import Enforcement, Mode
from app.runs.service import JoinedRun, Runs
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
    inquiries: Sequence[Inquiry] = ()
    runs: Runs | None = None

    async def respond(self, call: Call) -> Reply:
        """Answer a request. Raises GatewayError, with the event written; cancelling it ends everything."""
        intake, trace = call.intake, self._open_trace(call)
        exchange = Exchange(trace=trace, events=self.events, observers=self.observers)
        async with exchange:
            if call.key is not None:
                call.key.check_body(intake.body)
                call.key.check_documents(intake.chunks, intake.path_of)
            run = exchange.run = await self._join(call, trace)
            engine = self.policies.engine if run is None else run.engine
            policies = trace.policies = engine.in_scope(
                agent=trace.agent, model=intake.model, key=call.key_names, unit=trace.run_id or trace.request_id
            )
            wanted = policies.grounding_settings.evidence_from_tools
            trace.tools = None if self.settings.evidence_from_tools or intake.from_tools is None else wanted
            if self.settings.evidence_from_tools or wanted:
                intake = _with_tools(intake, call.key)
                call = structs.replace(call, intake=intake)
            elif intake.late:
                intake = structs.replace(intake, late=False)
            ruling = self._retrieve(policies, intake, trace)
            kept = tuple(chunk for index, chunk in enumerate(intake.chunks) if index not in ruling.dropped)
            mode = self._mode(policies, intake, kept)
            watched = (
                mode is Mode.UNTOUCHED and bool(kept) and bool(PolicySet(policies.shadow).in_category("grounding"))
            )
            judged = watched or mode is not Mode.UNTOUCHED
            trace.judging = JudgeOptions.of(policies.grounding_settings) if judged else None
            evidence = exchange.tasks.start(self.checker.prepare(kept)) if self._judges(judged, kept) else None
            ruling = await self._compare(policies, ruling, intake, trace)
            earlier = await run.claims() if run is not None and policies.grounding_settings.consistency_check else ()
            if (forwarded := intake.drop(ruling.dropped)) is not call.intake:
                call = structs.replace(call, intake=forwarded)
            response = await self._send(call, kept, exchange)
            if not response.is_success:
                return await self._pass_error(response, exchange)
            index = await evidence if evidence is not None else None
            terms = self._terms(ruling, intake, kept, mode, earlier)
            late = self._late(ruling, call, kept, mode, trace, earlier) if intake.late else None
            if mode is Mode.UNTOUCHED:
                if watched and index is not None:
                    exchange.watch = watch(policies, terms, self.checker, index)
                exchange.enforcement = Passage(trace=trace, terms=terms, watch=exchange.watch, late=late)
            else:
                if kept:
                    trace.judge_fault = self.checker.fault or self.checker.error
                opener = partial(opener_of, policies, trace, self.checker)
                exchange.enforcement = Enforcement(
                    mode=_effective(mode, held=terms.unjudged is None or intake.late or is_refused(policies, terms)),
                    trace=trace,
                    open_choice=opener(terms, index),
                    expected=intake.choices,
                    wants_usage=intake.include_usage,
                    admit=None if late is None else admitting(late, opener),
                    regeneration=self._regeneration(policies, call, kept, mode, exchange),
                )
            if intake.stream:
                return self._stream(call, response, exchange, exchange.enforcement)
            return await self._collect(call, response, exchange, exchange.enforcement)

    # read

    def _open_trace(self, call: Call) -> Trace:
        intake = call.intake
        trace = Trace(api=call.dialect.api, stream=intake.stream, store_text=self.settings.store_text)
        trace.model, trace.agent, trace.run_id = intake.model, intake.options.agent, intake.options.run_id
        trace.key_prefix = call.key.prefix if call.key is not None else None
        trace.prompt = call.dialect.prompt_text(intake.body)
        structlog.contextvars.bind_contextvars(request_id=trace.request_id)
        return trace

    async def _join(self, call: Call, trace: Trace) -> JoinedRun | None:
        """The run that the request is a part of: it rules, and what the request finds is added to it."""
        if self.runs is None:
            return None
        run = await self.runs.join(trace.run_id, agent=trace.agent, key=call.key)
        if run is not None:
            trace.agent = run.agent
        return run

    # retrieval decision

    def _retrieve(self, policies: PolicySet, intake: Intake, trace: Trace) -> CombinedDecision:
        ruling = policies.evaluate_documents(PolicyInputs(chunks=intake.chunks, injectable=intake.injectable))
        trace.decisions.extend(ruling.decisions)
        trace.injectable = intake.injectable
        trace.keep_documents(intake.chunks, ruling.dropped)
        if ruling.action is Action.BLOCK:
            trace.block(http_status=PolicyBlockedError.status)
            blocking = next(decision for decision in ruling.decisions if decision.action is Action.BLOCK)
            index = ruling.cause.metadata.get("document_index") if ruling.cause else None
            raise PolicyBlockedError(
                blocking.reason,
                type="retrieval_policy_violation",
                code=ruling.cause.reason_code if ruling.cause else blocking.reason_code,
                param="documents" if index is None else intake.path_of(index),
                violations=[decision_to_dict(decision) for decision in ruling.decisions],
            )
        return ruling

    async def _compare(
        self, policies: PolicySet, ruling: CombinedDecision, intake: Intake, trace: Trace
    ) -> CombinedDecision:
        """Hold the documents used against each other, where a policy wants that: the ruling with what came of it. Such
        a conflict is only warned of, so that the request waits for it no longer than the settings say."""
        used = [replace(chunk, text="") if i in ruling.dropped else chunk for i, chunk in enumerate(intake.chunks)]
        if not policies.checks_conflicts or len(used) - len(ruling.dropped) < 2:
            return ruling
        comparing = self.checker.consistency
        found = (
            await comparing.documents(used, timeout_s=self.settings.conflicts_timeout_ms / 1e3)
            if comparing is not None
            else Consistency(reason="unavailable")
        )
        trace.conflicts = found
        ruling = policies.evaluate_documents(
            PolicyInputs(chunks=intake.chunks, injectable=intake.injectable, conflicts=found)
        )
        trace.decisions = list(ruling.decisions)
        trace.withheld += found.texts
        return ruling

    def _mode(self, policies: PolicySet, intake: Intake, kept: Sequence[Chunk]) -> Mode:
        """When text may leave. A unary reply leaves when it is complete, so all of it is decided first."""
        if not policies.in_category("grounding") and not ((kept or intake.late) and self.settings.annotate_by_default):
            return Mode.UNTOUCHED
        return Mode(policies.grounding_settings.stream_mode) if intake.stream else Mode.FINAL

    def _judges(self, wanted: bool, kept: Sequence[Chunk]) -> bool:
        # A judge that has not been loaded yet is loaded on first use; one that failed to load stays out.
        return wanted and bool(kept) and self.checker.error is None

    def _terms(
        self, ruling: CombinedDecision, intake: Intake, kept: Sequence[Chunk], mode: Mode, earlier: Sequence[Claim]
    ) -> Terms:
        available = self.checker.available
        unjudged = ReplyVerdict.NO_SOURCES if not kept else None if available else ReplyVerdict.NOT_CHECKED
        return Terms(
            options=intake.options,
            chunks=kept,
            names=DocumentNames(kept),
            positions=[index for index in range(len(intake.chunks)) if index not in ruling.dropped],
            injectable=intake.injectable,
            strippable=mode is not Mode.LIVE and not intake.is_json,
            retrieval=retrieval_summary(intake.chunks, ruling.dropped, ruling.decisions, intake.notes),
            retrieval_decisions=ruling.decisions,
            unjudged=unjudged,
            judge_unavailable=bool(kept) and not available,
            judge_name=self.checker.name if available else None,
            expected=intake.choices or 1,
            store_text=self.settings.store_text,
            inquiries=self.inquiries,
            earlier=earlier,
            is_json=intake.is_json,
            asked=question_of(intake.query) if intake.query else asked_in(intake.body),
        )

    def _late(
        self,
        ruling: CombinedDecision,
        call: Call,
        kept: Sequence[Chunk],
        mode: Mode,
        trace: Trace,
        earlier: Sequence[Claim],
    ) -> Late:
        """Takes in documents that come with the reply: evidence beside the request's for the choices after them. Those
        of a collection that the key is not for are none."""
        intake, key = call.intake, call.key

        async def take(documents: Sequence[Chunk]) -> tuple[Terms, Any]:
            nonlocal intake, kept
            if key is not None:
                documents = [document for document in documents if key.permits(document, unnamed=True)]
            intake = intake.with_chunks(documents, [f"output:{chunk.id}" for chunk in documents])
            kept = (*kept, *documents)
            trace.keep_documents(intake.chunks, ruling.dropped, late=trace.late + len(documents))
            index = await self.checker.prepare(kept) if self._judges(mode is not Mode.UNTOUCHED, kept) else None
            return self._terms(ruling, intake, kept, mode, earlier), index

        return take

    # upstream

    async def _send(self, call: Call, kept: Sequence[Chunk], exchange: Exchange) -> Response:
        exchange.trace.start_upstream()
        sent = await self.upstream.send(upstream_request(call, kept))
        exchange.hold(sent.response)
        exchange.trace.mark("upstream_answered")
        exchange.trace.sent_model = sent.model
        return sent.response

    def _regeneration(
        self, policies: PolicySet, call: Call, kept: Sequence[Chunk], mode: Mode, exchange: Exchange
    ) -> Regeneration | None:
        """The means to ask the upstream once more, from what stands of its reply; None: no policy wants that."""
        limit = policies.grounding_settings.max_regenerations
        dialect, intake = call.dialect, call.intake
        if not limit or mode is Mode.UNTOUCHED:
            return None
        if not isinstance(dialect, Resumable):
            return Regeneration.unavailable_for("api")
        if mode is Mode.LIVE or intake.is_json:
            return Regeneration.unavailable_for("json" if intake.is_json else "live")

        async def send(turn: Turn) -> Again | None:
            response = (await self.upstream.send(upstream_request(call, kept, turn))).response
            exchange.hold(response)
            if not response.is_success:
                return None
            kind = _content_type(response)
            events = dialect.resumed(self._reply(response), kind, exchange.trace, turn.frame)
            return Again(events=events, end_earlier=exchange.end_earlier)

        return Regeneration(limit=limit, unavailable=dialect.not_resumable(intake.body), send=send)

    async def _pass_error(self, response: Response, exchange: Exchange) -> Reply:
        """The upstream refuses: its status and body are the client's."""
        body = await self._read(response, exchange)
        exchange.trace.fail("upstream_error", f"upstream answered {response.status_code}")
        exchange.trace.http_status = response.status_code
        await exchange.record()
        return Reply(status=response.status_code, headers=self._headers(response, exchange.trace), body=body)

    # reply

    def _stream(self, call: Call, response: Response, exchange: Exchange, enforcement: Enforcement | Passage) -> Reply:
        events = call.dialect.events(self._reply(response), _content_type(response), exchange.trace)
        stream = ReplyStream(call.dialect, exchange, enforcement.run(events))
        headers = [
            *((name, value) for name, value in self._headers(response, exchange.trace) if name not in _STREAM_HEADERS),
            ("content-type", "text/event-stream; charset=utf-8"),
            ("cache-control", "no-cache"),
            ("x-accel-buffering", "no"),
        ]
        held = enforcement.mode is not Mode.UNTOUCHED
        return Reply(status=response.status_code, headers=headers, stream=stream, held=held)

    async def _collect(
        self, call: Call, response: Response, exchange: Exchange, enforcement: Enforcement | Passage
    ) -> Reply:
        trace = exchange.trace
        body = await self._read(response, exchange)
        kind = "application/json" if body.lstrip()[:1] == b"{" else _content_type(response)
        events = call.dialect.events(_once(body), kind, trace)
        async with aclosing(enforcement.run(events)) as run:
            outputs = [output async for output in run]
        headers = self._headers(response, trace)
        refused = next((output for output in outputs if isinstance(output, Refused)), None)
        if refused is not None:
            trace.block(http_status=PolicyBlockedError.status)
            raise PolicyBlockedError(
                refused.reason,
                type="grounding_policy_violation",
                code=refused.reason_code,
                param=None,
                violations=refused.decisions,
            )
        governed = enforcement.mode is not Mode.UNTOUCHED
        broken = next((output for output in outputs if isinstance(output, Failure) and output.broken), None)
        if broken is not None and governed:
            raise UpstreamConnectError(broken.message)
        if governed or not _is_json(response):
            body = call.dialect.collect(body, outputs)
            headers = [(name, value) for name, value in headers if name != "content-type"]
            headers.append(("content-type", "application/json"))
        await exchange.record()
        return Reply(status=response.status_code, headers=[*headers, *_verdict_headers(trace)], body=body)

    def _reply(self, response: Response) -> AsyncIterator[bytes]:
        """The bytes of a reply: of a stream as they come, and of one that is read whole no more than there may be."""
        data = decoded(response)
        return _within(self.settings.max_reply_bytes, data) if _is_json(response) else data

    async def _read(self, response: Response, exchange: Exchange) -> bytes:
        """The body of a reply, whole, so that its connection is free for another."""
        body = b"".join([data async for data in _within(self.settings.max_reply_bytes, decoded(response))])
        await exchange.end_calls()
        return body

    def _headers(self, response: Response, trace: Trace) -> Headers:
        return [*returned_headers(response, decoded=True), ("x-groundlane-request-id", trace.request_id)]


_STREAM_HEADERS = frozenset({"content-type", "cache-control", "x-accel-buffering"})


def _with_tools(intake: Intake, key: GatewayKey | None) -> Intake:
    """The request with what tools said. That need not be a document of any collection, but none of another's either."""
    intake = intake.with_tools()
    if key is not None:
        key.check_documents(intake.chunks, intake.path_of, unnamed=True)
    return intake


def _effective(mode: Mode, *, held: bool) -> Mode:
    """Where nothing is judged there is no sentence to wait for: a held stream need not be held."""
    return Mode.LIVE if mode is Mode.HOLD and not held else mode


def _verdict_headers(trace: Trace) -> Headers:
    headers = [("x-groundlane-action", trace.action), ("x-groundlane-verdict", trace.verdict)]
    if trace.trust_score is not None:
        headers.append(("x-groundlane-trust-score", f"{trace.trust_score:.4f}"))
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
