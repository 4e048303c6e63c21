"""Tracing: the spans of a call, trace propagation, and when tracing is off."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from app.observability.opentelemetry import OtelTracing
from app.observability.tracing import open_tracing
from judges.types import Label
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway, eventually
from tests.support.gateways.mock_upstream import json_reply
from tests.system.clients.scenario import CLOSED, DOCUMENTS, LIE, MODEL, PLANS, PROMPT, STALE

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


class Traced:
    """A gateway with tracing, and its spans."""

    def __init__(self, gateway: Gateway, spans: InMemorySpanExporter) -> None:
        self.gateway, self._spans = gateway, spans

    def ask(self, *, stream: bool = False, path: str = "/v1/chat/completions", **fields: Any) -> int:
        body = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "stream": stream, **fields}
        with self.gateway.call(body, path=path, headers=TRACEPARENT) as call:
            call.read_all()
            return call.status

    def spans(self) -> dict[str, ReadableSpan]:
        """The spans of the call by name, once it has ended."""

        def look() -> dict[str, ReadableSpan] | None:
            found = {span.name: span for span in self._spans.get_finished_spans()}
            return found if any(span.kind is SpanKind.SERVER for span in found.values()) else None

        return eventually(look, "end of the call's span")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    gateway = Gateway(tmp_path_factory.mktemp("traced"), tracing=OtelTracing(provider)).start()
    yield Traced(gateway, exporter)
    gateway.close()


@pytest.fixture
def traced(started: Traced) -> Traced:
    started.gateway.reset()
    started.gateway.upstream.exchanges.clear()
    started._spans.clear()
    return started


def id_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_blocked_reply_is_traced_from_the_callers_span_to_the_upstreams(traced: Traced, stream: bool) -> None:
    gateway = traced.gateway
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    gateway.upstream.script(answer(f"{PLANS} {LIE}", stream=stream))
    agent = gateway.agent(grounding=CLOSED, retrieval={})
    traced.ask(stream=stream, documents=list(DOCUMENTS), grounding={"agent": agent})
    spans = traced.spans()
    root = spans[f"chat.completions {MODEL}"]
    assert set(spans) == {root.name, "policies retrieval", f"chat {MODEL}", "judge", "policies grounding"}
    assert {f"{span.context.trace_id:032x}" for span in spans.values() if span.context} == {TRACE}
    assert root.parent is not None
    assert f"{root.parent.span_id:016x}" == PARENT
    children = [span for span in spans.values() if span is not root]
    assert all(span.parent and span.parent.span_id == root.context.span_id for span in children if root.context)
    assert all((root.start_time or 0) <= (span.start_time or 0) <= (span.end_time or 0) for span in children)

    sent = dict(gateway.upstream.wait_exchange().headers)
    assert sent["traceparent"] == f"00-{TRACE}-{id_of(spans[f'chat {MODEL}'])}-01"

    told = dict(root.attributes or {})
    assert told["groundlane.action"] == "block"
    assert told["groundlane.verdict"] == "has_contradictions"
    assert (told["gen_ai.agent.name"], told["http.response.status_code"]) == (agent, 200)
    asked = dict(spans[f"chat {MODEL}"].attributes or {})
    assert (asked["gen_ai.operation.name"], asked["gen_ai.request.model"]) == ("chat", MODEL)
    assert (asked["gen_ai.provider.name"], asked["groundlane.upstream"]) == ("openai", "default")
    assert asked["gen_ai.usage.output_tokens"]
    (result,) = [event for event in spans["judge"].events if event.name == "gen_ai.evaluation.result"]
    assert dict(result.attributes or {})["gen_ai.evaluation.score.label"] == "has_contradictions"
    verdicts = [(event.attributes or {}).get("groundlane.claim.verdict") for event in spans["judge"].events]
    assert verdicts[:2] == ["supported", "contradicted"]
    codes = [(event.attributes or {}).get("groundlane.reason_code") for event in spans["policies grounding"].events]
    assert "GROUNDING_CONTRADICTION" in codes
    assert LIE not in json.dumps([json.loads(span.to_json()) for span in spans.values()]), "no text of anybody's"


def test_blocked_document_is_traced_without_an_upstream_span(traced: Traced) -> None:
    agent = traced.gateway.agent(retrieval={})
    assert traced.ask(documents=list(STALE), grounding={"agent": agent}) == 400
    spans = traced.spans()
    assert [name for name, span in spans.items() if span.kind is SpanKind.CLIENT] == []
    decided = spans["policies retrieval"]
    assert dict(decided.attributes or {})["groundlane.action"] == "block"
    assert "RETRIEVAL_STALE_SOURCE" in [
        (event.attributes or {}).get("groundlane.reason_code") for event in decided.events
    ]


def test_upstream_failure_is_an_error_in_the_trace(traced: Traced) -> None:
    traced.gateway.upstream.script(json_reply({"error": {"message": "Out of order."}}, status=500))
    assert traced.ask(documents=list(DOCUMENTS)) == 500
    spans = traced.spans()
    for name in (f"chat.completions {MODEL}", f"chat {MODEL}"):
        assert spans[name].status.status_code is StatusCode.ERROR
        assert dict(spans[name].attributes or {})["error.type"] == "upstream_error"


def test_passed_through_call_has_its_own_and_an_upstream_span(traced: Traced) -> None:
    traced.gateway.upstream.script(answer(PLANS, stream=False))
    assert traced.ask(path="/v1/embeddings", input="x") == 200
    spans = traced.spans()
    assert set(spans) == {"POST /v1/embeddings", "POST /embeddings"}
    assert spans["POST /embeddings"].kind is SpanKind.CLIENT


def test_check_is_traced(traced: Traced) -> None:
    body = {"text": PLANS, "sources": [PLANS]}
    with traced.gateway.call(body, path="/v1/grounding/check", headers=TRACEPARENT) as call:
        call.read_all()
    spans = traced.spans()
    assert {"grounding.check", "judge"} <= set(spans)
    assert spans["grounding.check"].status.status_code is StatusCode.UNSET


META = f"00-{TRACE[::-1]}-{PARENT[::-1]}-01"


@pytest.mark.parametrize("meta", [{}, {"traceparent": META}, {"traceparent": 3, "progressToken": "p"}])
def test_tool_call_continues_the_trace_of_its_message(traced: Traced, meta: dict[str, Any]) -> None:
    """As the semantic conventions for MCP require, the message's ``_meta`` takes precedence over the headers."""
    spans = call_tool(traced, {"text": PLANS, "sources": [PLANS]}, meta)
    http, tool = spans["POST /mcp"], spans["tools/call check_grounding"]
    assert http.context is not None
    assert tool.context is not None
    assert tool.parent is not None
    within = meta.get("traceparent") == META
    assert f"{tool.context.trace_id:032x}" == (TRACE[::-1] if within else TRACE)
    assert f"{tool.parent.span_id:016x}" == (PARENT[::-1] if within else id_of(http))
    assert [link.context.span_id for link in tool.links] == ([http.context.span_id] if within else [])
    told = dict(tool.attributes or {})
    assert (told["mcp.method.name"], told["gen_ai.tool.name"]) == ("tools/call", "check_grounding")
    assert (told["gen_ai.operation.name"], told["groundlane.verdict"]) == ("execute_tool", "supported")
    assert (tool.kind, tool.status.status_code) == (SpanKind.SERVER, StatusCode.UNSET)
    judged = spans["judge"]
    assert judged.parent is not None
    assert judged.parent.span_id == tool.context.span_id
    assert PLANS not in json.dumps([json.loads(span.to_json()) for span in spans.values()]), "no text of anybody's"


def test_failed_tool_call_is_an_error_in_the_trace(traced: Traced) -> None:
    wrong = call_tool(traced, {"text": 3}, {})["tools/call check_grounding"]
    assert (dict(wrong.attributes or {})["error.type"], wrong.status.status_code) == ("tool_error", StatusCode.ERROR)
    traced._spans.clear()
    unknown = call_tool(traced, {}, {}, name="check_weather")["tools/call"]
    assert dict(unknown.attributes or {})["error.type"] == "-32602"


def call_tool(
    traced: Traced, arguments: dict[str, Any], meta: dict[str, Any], name: str = "check_grounding"
) -> dict[str, ReadableSpan]:
    params = {"name": name, "arguments": arguments, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {**TRACEPARENT, "accept": "application/json, text/event-stream"}
    with traced.gateway.call(body, path="/mcp", headers=headers) as call:
        call.read_all()
        assert call.status == 200

    def look() -> dict[str, ReadableSpan] | None:
        found = {span.name: span for span in traced._spans.get_finished_spans()}
        return found if "POST /mcp" in found else None

    return eventually(look, "end of the call's span")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector"},
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
)
def test_tracing_is_off_unless_configured_and_installed(environment: dict[str, str]) -> None:
    assert open_tracing(environment) is None


@pytest.mark.parametrize(
    "environment", [{"OTEL_TRACES_EXPORTER": "console"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}]
)
def test_standard_variables_turn_tracing_on(environment: dict[str, str]) -> None:
    tracing = open_tracing(environment)
    assert isinstance(tracing, OtelTracing)
    tracing.shutdown()


def test_gateway_without_tracing_does_not_import_the_sdk() -> None:
    code = "import sys, app.main; print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
