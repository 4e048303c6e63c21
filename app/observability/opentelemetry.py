"""OpenTelemetry spans, and trace propagation to the upstream.

The span of a call lasts from its first byte to its last. An upstream span lasts until the reply has been read. All
other spans are created after the request has ended, with the timestamps in its event.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from time import time_ns
from typing import Any

from msgspec.structs import replace
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.config import UpstreamSpec
from app.events.records import RecordedRequest, RequestEvent, RequestRow
from app.observability.span_attributes import (
    model_attributes,
    note_failure,
    operation,
    request_attributes,
    without_none,
)
from app.upstream import RoutedResponse, UpstreamClient, UpstreamRequest
from policies.registry import decides_on
from policies.types import Action, Decision, PolicySubject

_SERVER_ERROR = 500
_PREFIX = "/v1/"
_MCP = frozenset({"/mcp", "/mcp/"})
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000


@dataclass(slots=True)
class _Call:
    """The tracing state of a pending call."""

    span: Span
    context: Context
    began: int
    """The time when the request was read, in nanoseconds since the epoch."""
    upstream: list[Span] = field(default_factory=list)
    status: int | None = None
    is_message: bool = False
    """Whether this is an MCP message. The call that contains the message has a separate span."""

    def at(self, ms: float) -> int:
        return self.began + int(ms * _NS_PER_MS)

    def end(self) -> None:
        for span in self.upstream:
            if span.is_recording():
                span.end()
        if self.status is not None:
            self.span.set_attribute("http.response.status_code", self.status)
            if self.status >= _SERVER_ERROR:
                self.span.set_status(Status(StatusCode.ERROR))
        self.span.end()


_CALL: ContextVar[_Call | None] = ContextVar("groundlane_traced_call", default=None)


def configured(exporters: Sequence[str], environment: Mapping[str, str]) -> "OtelTracing":
    """Set up tracing from OpenTelemetry's environment variables, or with the provider that the process's
    instrumentation has already installed.

    Raises ValueError for exporters other than ``otlp`` and ``console``, and ImportError if a package is missing.
    """
    installed = trace.get_tracer_provider()
    if isinstance(installed, TracerProvider):
        return OtelTracing(installed, owned=False)
    named = "OTEL_SERVICE_NAME" in environment or "service.name" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    provider = TracerProvider(resource=Resource.create({} if named else {"service.name": "groundlane"}))
    for name in exporters:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name.strip(), environment)))
    return OtelTracing(provider)


def _exporter(name: str, environment: Mapping[str, str]) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter()
    if name != "otlp":
        raise ValueError(f"OTEL_TRACES_EXPORTER: unsupported exporter {name!r}; use otlp, console or none")
    general = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", general) != "grpc":
        return OTLPSpanExporter()
    try:
        module = import_module("opentelemetry.exporter.otlp.proto.grpc.trace_exporter")
    except ImportError as error:
        raise ImportError("OTLP over gRPC requires the package opentelemetry-exporter-otlp-proto-grpc") from error
    exporter: SpanExporter = module.OTLPSpanExporter()
    return exporter


class OtelTracing:
    """Creates spans with ``provider``. There is one instance per process. An ``owned`` provider is shut down with this
    object."""

    def __init__(self, provider: TracerProvider, *, owned: bool = True) -> None:
        self._provider, self._owned = provider, owned
        self._tracer = provider.get_tracer("groundlane")

    def upstreams(self, specs: Sequence[UpstreamSpec], **options: Any) -> "TracedUpstreamClient":
        upstreams = TracedUpstreamClient(specs, **options)
        upstreams.tracing = self
        return upstreams

    def app(self, app: ASGIApp) -> ASGIApp:
        async def traced(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or not (scope["path"].startswith(_PREFIX) or scope["path"] in _MCP):
                await app(scope, receive, send)
                return
            call = self._begin(scope)

            async def noted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    call.status = message["status"]
                await send(message)

            token = _CALL.set(call)
            try:
                await app(scope, receive, noted)
            finally:
                _CALL.reset(token)
                call.end()

        return traced

    def sending(self, request: UpstreamRequest) -> tuple[UpstreamRequest, Span | None]:
        """Return ``request`` with trace context headers, and its span. The span ends with the reply."""
        call = _CALL.get()
        if call is None:
            return request, None
        for earlier in call.upstream:
            if earlier.is_recording():
                earlier.end()
        span = self._tracer.start_span(f"{request.method} {request.path}", call.context, SpanKind.CLIENT)
        call.upstream.append(span)
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span, call.context))
        headers = [header for header in request.headers if header[0] not in carrier]
        return replace(request, headers=[*headers, *carrier.items()]), span

    @contextmanager
    def message(
        self, name: str, attributes: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> Iterator[Callable[[str], None]]:
        outer = _CALL.get()
        carrier = {
            field: value for field in propagate.get_global_textmap().fields if isinstance(value := meta.get(field), str)
        }
        parent = propagate.extract(carrier) if carrier else Context()
        around = trace.get_current_span(parent).get_span_context()
        links = []
        if outer is not None:
            links = [Link(outer.span.get_span_context())] if around.is_valid else []
            parent = parent if around.is_valid else outer.context
        began = time_ns()
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, without_none(attributes), links, began)
        call = _Call(span, trace.set_span_in_context(span, parent), began, is_message=True)

        def failed(kind: str) -> None:
            span.set_attribute("error.type", kind)
            span.set_status(Status(StatusCode.ERROR))

        token = _CALL.set(call)
        try:
            yield failed
        finally:
            _CALL.reset(token)
            call.end()

    def observe(self, record: RecordedRequest) -> None:
        call = _CALL.get()
        if call is None or not call.span.is_recording():
            return
        event = record.event()
        row = event.request
        call.began = int(row.ts.timestamp() * _NS_PER_S)
        if not call.is_message:
            call.span.update_name(f"{row.api} {row.model}" if row.model else row.api)
        call.span.set_attributes(request_attributes(row))
        note_failure(call.span, row)
        marks: Mapping[str, float] = row.extra.get("marks", {})
        self._documents(call, event, marks)
        self._upstream(call, row, marks)
        self._judge(call, event)
        self._grounding(call, event)

    def shutdown(self) -> None:
        if self._owned:
            self._provider.shutdown()

    def _begin(self, scope: Scope) -> _Call:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        parent = trace.get_current_span()
        # If the server's instrumentation has already started a span, the new span becomes its child.
        outer = None if parent.get_span_context().is_valid else propagate.extract(headers)
        attributes = {"http.request.method": scope["method"], "url.path": scope["path"]}
        began = time_ns()
        name = f"{scope['method']} {scope['path']}"
        span = self._tracer.start_span(name, outer, SpanKind.SERVER, attributes, start_time=began)
        return _Call(span, trace.set_span_in_context(span, outer), began)

    def _documents(self, call: _Call, event: RequestEvent, marks: Mapping[str, float]) -> None:
        if not event.documents:
            return
        decisions = [each for each in event.decisions if decides_on(each.category, PolicySubject.DOCUMENTS)]
        asked = marks.get("upstream_asked", 0.0 if event.request.upstream_ms is not None else event.request.total_ms)
        attributes = {
            "groundlane.documents": len(event.documents),
            "groundlane.documents.kept": sum(document.kept for document in event.documents),
        }
        self._decided(call, "policies retrieval", decisions, (0.0, asked), attributes)

    def _upstream(self, call: _Call, row: RequestRow, marks: Mapping[str, float]) -> None:
        """Complete the spans of the upstream calls. The span of the last call gets the attributes of the reply. If the
        reply was regenerated, its token counts are the totals of all calls."""
        if not call.upstream:
            return
        span = call.upstream[-1]
        span.update_name(f"{operation(row)} {row.model or ''}".strip())
        span.set_attributes(model_attributes(row))
        if "first_text" in marks and len(call.upstream) == 1:
            first = (marks["first_text"] - marks.get("upstream_asked", 0.0)) / 1e3
            span.set_attribute("gen_ai.response.time_to_first_chunk", first)
        note_failure(span, row)
        span.end(call.at(marks.get("upstream_ended", row.total_ms)))

    def _judge(self, call: _Call, event: RequestEvent) -> None:
        """Create a span from the first sentence sent to the judge to the last verdict, with a span event for each
        verdict."""
        row = event.request
        if row.judge_ms is None:
            return
        stamps = [at for claim in event.claims if (at := claim.extra.get("at"))]
        start = min((at[0] for at in stamps), default=row.total_ms - row.judge_ms)
        end = max((at[1] for at in stamps), default=row.total_ms)
        span = self._tracer.start_span("judge", call.context, start_time=call.at(max(start, 0.0)))
        span.set_attribute("groundlane.judge.busy_ms", row.judge_ms)
        span.set_attribute("groundlane.sentences", row.sentences)
        for claim in event.claims:
            found = {
                "groundlane.claim.verdict": str(claim.label),
                "groundlane.claim.score": claim.score,
                "groundlane.claim.document": claim.document_id,
                "groundlane.claim.delivered": claim.delivered,
            }
            at = claim.extra.get("at")
            span.add_event("claim", without_none(found), call.at(at[1] if at else end))
        result = {
            "gen_ai.evaluation.name": "groundedness",
            "gen_ai.evaluation.score.label": row.verdict,
            "gen_ai.evaluation.score.value": row.trust_score,
        }
        span.add_event("gen_ai.evaluation.result", without_none(result), call.at(end))
        span.end(call.at(end))

    def _grounding(self, call: _Call, event: RequestEvent) -> None:
        decisions = [
            decision for decision in event.decisions if not decides_on(decision.category, PolicySubject.DOCUMENTS)
        ]
        if decisions:
            total, took = event.request.total_ms, sum(decision.latency_ms for decision in decisions)
            self._decided(call, "policies grounding", decisions, (max(0.0, total - took), total), {})

    def _decided(
        self,
        call: _Call,
        name: str,
        decisions: Sequence[Decision],
        between: tuple[float, float],
        attributes: Mapping[str, Any],
    ) -> None:
        span = self._tracer.start_span(name, call.context, start_time=call.at(between[0]))
        blocks = any(decision.action is Action.BLOCK for decision in decisions)
        action = "block" if blocks else "allow" if all(d.action is Action.ALLOW for d in decisions) else "warn"
        span.set_attributes({"groundlane.action": action, **attributes})
        for decision in decisions:
            found = {
                "groundlane.policy": decision.policy_name,
                "groundlane.policy.version": decision.policy_version,
                "groundlane.phase": decision.phase.value,
                "groundlane.action": decision.action.value,
                "groundlane.reason_code": decision.reason_code,
            }
            span.add_event("decision", without_none(found), call.at(between[1]))
        span.end(call.at(between[1]))


class TracedUpstreamClient(UpstreamClient):
    """An UpstreamClient that propagates the call's trace with every request."""

    tracing: OtelTracing

    async def send(self, request: UpstreamRequest) -> RoutedResponse:
        request, span = self.tracing.sending(request)
        sent = await super().send(request)
        if span is not None:
            span.set_attribute("groundlane.upstream", sent.upstream)
            span.set_attribute("http.response.status_code", sent.response.status_code)
        return sent
