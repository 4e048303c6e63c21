"""Secrets and text that pass through a gateway appear in none of its outputs: log lines of any level, the database,
traces, metrics, errors, and the admin API."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.auth.secrets import new_secret_key
from app.observability.logs import configure_logging
from app.observability.opentelemetry import OtelTracing
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import ADMIN_TOKEN, UPSTREAM_KEY, Gateway, eventually
from tests.support.gateways.mock_upstream import json_reply

SECRET_KEY = new_secret_key()
STORED = "vaulted-canary-4821"
CALLER = "callers-canary-5932"
COOKIE = "cookie-canary-6043"
WRONG_TOKEN = "wrong-token-canary-7154"
PROMPT = "The prompt says canary-prompt-8265."
DOCUMENT = "The document says canary-document-9376."
REPLY = "The reply says canary-reply-1487."
UPSTREAM_ERROR = "The upstream said canary-error-2598."
CANARIES = (
    ADMIN_TOKEN,
    UPSTREAM_KEY,
    SECRET_KEY,
    STORED,
    CALLER,
    COOKIE,
    WRONG_TOKEN,
    PROMPT,
    DOCUMENT,
    REPLY,
    UPSTREAM_ERROR,
)
BODY = {"model": "m-1", "messages": [{"role": "user", "content": PROMPT}], "documents": [{"text": DOCUMENT}]}
HEADERS = {"authorization": f"Bearer {CALLER}", "cookie": f"groundlane_session={COOKIE}", "x-api-key": CALLER}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    stream = io.StringIO()
    configure_logging("debug", "json", stream=stream)
    yield stream
    root.handlers = handlers
    root.setLevel(level)


def test_no_secret_or_text_is_left_behind(tmp_path: Path, log: io.StringIO) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    gateway = Gateway(tmp_path, tracing=OtelTracing(provider), secret_key=SECRET_KEY, store_text="hash").start()
    try:
        shown = [*_use(gateway), *_look(gateway)]
    finally:
        gateway.close()
    left = {
        "log": log.getvalue(),
        "traces": "".join(span.to_json() for span in exporter.get_finished_spans()),
        "answers": "\n".join(shown),
        **{file.name: file.read_bytes().decode("latin-1") for file in tmp_path.rglob("*") if file.is_file()},
    }
    assert {"log", "traces", "groundlane.db"} <= left.keys()
    assert "request_completed" in left["log"] or "request" in left["log"]
    found = [(place, canary) for place, text in left.items() for canary in CANARIES if canary in text]
    assert found == []


def _use(gateway: Gateway) -> Iterator[str]:
    """Calls with every outcome; returns the gateway's own answers."""
    made = gateway.admin.post("/keys", json={"name": "k"}).json()
    assert gateway.admin.put("/secrets/upstream", json={"value": STORED}).status_code == 200
    for stream in (False, True):
        gateway.upstream.script(answer(REPLY, stream=stream))
        for headers in (HEADERS, {**HEADERS, "authorization": f"Bearer {made['key']}"}):
            with gateway.call({**BODY, "stream": stream}, headers=headers) as call:
                call.read_all()
                assert call.status == 200
    gateway.upstream.script(json_reply({"error": {"message": UPSTREAM_ERROR}}, status=401))
    with gateway.call(BODY, headers=HEADERS) as call:
        call.read_all()
    for bad in (
        {**BODY, "documents": [{"text": DOCUMENT, "score": 7}]},
        b'{"messages": ',
        {**BODY, "grounding": {"x": PROMPT}},
    ):
        with gateway.call(bad, headers=HEADERS) as call:
            yield call.read_all().decode()
    key = made["key"]
    with gateway.call(BODY, headers={"authorization": f"Bearer {key[:-3]}abc"}) as call:
        answered = call.read_all().decode()
        assert call.status == 401
        assert key[:-3] not in answered
        yield answered
    refused = gateway.admin.get("/policies", headers={"authorization": f"Bearer {WRONG_TOKEN}"})
    assert refused.status_code == 401
    yield refused.text
    yield gateway.admin.put("/secrets/bad", json={"value": f"{STORED}\n"}).text
    gateway.upstream.script(json_reply({}))


def _look(gateway: Gateway) -> Iterator[str]:
    """What an operator sees afterwards."""
    rows = eventually(lambda: _rows(gateway), "the requests' rows")
    for path in (
        "/keys",
        "/secrets",
        "/audit",
        "/upstreams",
        "/requests",
        "/events",
        "/requests/export",
        "/claims/export",
    ):
        yield gateway.admin.get(path).text
    for row in rows:
        yield gateway.admin.get(f"/requests/{row}").text
    for path in ("/metrics", "/readyz", "/openapi.json"):
        with gateway.call(path=path, method="GET") as call:
            yield call.read_all().decode()


def _rows(gateway: Gateway) -> list[str] | None:
    items = json.loads(gateway.admin.get("/requests").text)["items"]
    return [item["request_id"] for item in items] if len(items) >= 5 else None


def test_log_entry_is_always_one_line(log: io.StringIO) -> None:
    for format in ("json", "console"):
        log.truncate(0)
        configure_logging("info", format, stream=log)
        hostile = 'x\n{"event": "forged"}\r\n\x1b[2J\u2028'
        logging.getLogger("app").warning("seen %s", hostile)
        logging.getLogger("app").warning(hostile)
        lines = [line for line in log.getvalue().replace("\0", "").split("\n") if line]
        assert len(lines) == 2, format
        assert "\x1b[2J" not in log.getvalue()
        assert "\r" not in log.getvalue()


SAID = [
    "Jane Roe takes 8888 canary-tablets [Jane Roe takes 8888 canary-tablets daily.pdf].",
    "low",
    "The limit is canary-low [7].",
]


@pytest.mark.parametrize("store_text", ["hash", "none"])
@pytest.mark.parametrize("action", ["warn", "block"])
def test_event_fields_contain_no_markers_or_claims(
    tmp_path: Path, log: io.StringIO, store_text: str, action: str
) -> None:
    gateway = Gateway(tmp_path, store_text=store_text).start()
    try:
        rules = {
            "action_on_violation": action,
            "require_valid_citations": True,
            "max_unsupported_claims": 0,
            "contradiction_action": "flag",
            "min_grounding_score": 0.0,
        }
        agent = gateway.agent(grounding=rules)
        gateway.upstream.script(answer(" ".join(SAID), stream=False))
        body = {**BODY, "grounding": {"agent": agent, "reported": {"unsupported_claims": ["low", "canary-reported"]}}}
        with gateway.call(body) as call:
            call.read_all()
            trace = gateway.trace(call.request_id)
        assert trace.request["action"] == action
        assert {decision["action"] for decision in trace.decisions} == {"allow", action}
        codes = {decision["reason_code"] for decision in trace.decisions}
        for decision in trace.decisions:
            codes |= {violation["reason_code"] for violation in decision["metadata"].get("violations", ())}
        assert codes >= {"GROUNDING_UNSUPPORTED"} | ({"GROUNDING_BAD_CITATION"} if action == "warn" else set())
    finally:
        gateway.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir()) + log.getvalue().encode()
    for word in (b"Jane", b"Roe", b"8888", b"canary-", b"daily"):
        assert word not in kept, word
