"""Ungoverned requests pass through: bytes, status and headers, in both directions."""

import gzip
import io
import json
from collections.abc import Callable

import pytest

from tests.support.gateways.live_gateway import UPSTREAM_KEY, Gateway
from tests.support.gateways.mock_upstream import Reply, closed_port, json_reply

MODELS = b'{ "object":"list", "data" : [] }'


def test_models_pass_unchanged_with_the_upstream_key(gateway: Gateway) -> None:
    gateway.upstream.script(Reply(headers={"content-type": "application/json", "x-request-id": "1"}, chunks=[MODELS]))
    with gateway.call(method="GET", path="/v1/models?limit=2&after=file-b%20c") as call:
        assert (call.status, call.read_all(), call.header("x-request-id")) == (200, MODELS, "1")
    exchange = gateway.upstream.wait_exchange()
    assert (exchange.method, exchange.path) == ("GET", "/v1/models?limit=2&after=file-b%20c")
    assert exchange.header("authorization") == f"Bearer {UPSTREAM_KEY}"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_bodies_pass_unchanged(gateway: Gateway, method: str) -> None:
    body = bytes(range(256)) * 400
    gateway.upstream.script(Reply(status=418, headers={"content-type": "audio/wav"}, chunks=[body[:7], body[7:]]))
    headers = {"content-type": "application/octet-stream"}
    with gateway.call(body, method=method, path="/v1/files/f-1/content", headers=headers) as call:
        assert (call.status, call.header("content-type"), call.read_all()) == (418, "audio/wav", body)
    exchange = gateway.upstream.wait_exchange()
    assert (exchange.body, exchange.header("content-type")) == (body, "application/octet-stream")


def test_compressed_answer_stays_compressed(gateway: Gateway) -> None:
    packed = gzip.compress(MODELS)
    headers = {"content-type": "application/json", "content-encoding": "gzip", "content-length": str(len(packed))}
    gateway.upstream.script(Reply(headers=headers, chunks=[packed], chunked=False))
    with gateway.call(method="GET", path="/v1/models", headers={"accept-encoding": "gzip"}) as call:
        assert call.header("content-encoding") == "gzip"
        assert call.header("content-length") == str(len(packed))
        assert call.read_all() == packed


@pytest.mark.parametrize("status", [204, 304])
def test_response_without_a_body_has_no_length(gateway: Gateway, status: int) -> None:
    gateway.upstream.script(Reply(status=status, headers={"content-length": "20", "etag": "e"}, chunked=False))
    with gateway.call(method="GET", path="/v1/files/f-1/content", headers={"if-none-match": "e"}) as call:
        assert (call.status, call.header("content-length"), call.header("etag")) == (status, None, "e")
        assert call.read_all() == b""


def test_hop_by_hop_headers_are_not_forwarded(gateway: Gateway) -> None:
    gateway.upstream.script(json_reply({}, headers={"connection": "x-hop", "x-hop": "1", "set-cookie": "a=b"}))
    headers = {"connection": "x-mine", "x-mine": "1", "cookie": "session=1", "x-groundlane-agent": "a", "te": "gzip"}
    with gateway.call(b"{}", path="/v1/embeddings", headers=headers) as call:
        assert call.status == 200
        assert (call.header("x-hop"), call.header("set-cookie")) == (None, None)
    exchange = gateway.upstream.wait_exchange()
    assert [exchange.header(name) for name in ("x-mine", "cookie", "x-groundlane-agent", "te")] == [None] * 4


def test_unreachable_upstream_is_a_502_in_openai_format(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(upstream_base_url=f"http://127.0.0.1:{closed_port()}/v1")
    with gateway.call(method="GET", path="/v1/models") as call:
        assert call.status == 502
        assert call.json()["error"]["type"] == "upstream_error"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/x/../chat/completions",
        "/v1/chat/./completions",
        "/v1/%2e/chat/completions",
        "/v1/x/%2e%2e/chat/completions",
        "/v1/x/%252e%252e/chat/completions",
        "/v1//chat/completions",
        "/v1/chat//completions",
        "/v1/chat/completions//",
        "/v1/Chat/Completions",
        "/v1/chat/completions;x=1",
        "/v1/chat/completions%00",
        "/v1/chat/completions%20",
        "/v1/chat%2Fcompletions",
        "/v1/chat\\completions",
        "/v1/RESPONSES",
        "/v1/messages;v",
        "/v1/../../secret/admin",
    ],
)
def test_governed_path_cannot_be_bypassed_by_spelling(gateway: Gateway, path: str) -> None:
    before = len(gateway.upstream.exchanges)
    with gateway.call(b"{}", path=path) as call:
        assert call.status in (400, 404)
        assert call.json()["error"]["type"] == "invalid_request_error"
    assert len(gateway.upstream.exchanges) == before


CLOSED = [
    ("POST", "/v1/deployments/gpt-4o/chat/completions"),
    ("POST", "/v1/engines/gpt-4o/completions"),
    ("POST", "/v1/batches"),
    ("POST", "/v1/threads/thread_1/runs"),
    ("POST", "/v1/responses/compact"),
    ("POST", "/v1/models/gemini:generateContent"),
    ("GET", "/v1/responses/resp_1"),
    ("GET", "/v1/chat/completions/chatcmpl-1"),
    ("GET", "/v1/realtime"),
    ("DELETE", "/v1/assistants/asst_1"),
    ("POST", "/v1/what-nobody-knows"),
]


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_ungoverned_generating_path_is_rejected(gateway: Gateway, method: str, path: str) -> None:
    before = len(gateway.upstream.exchanges)
    with gateway.call(b"{}", method=method, path=path) as call:
        error = call.json()["error"]
        assert (call.status, error["code"], error["param"]) == (403, "UNGOVERNED_PATH", "path")
        assert "GROUNDLANE_PASSTHROUGH" in error["message"]
    assert len(gateway.upstream.exchanges) == before


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses", "messages"])
@pytest.mark.parametrize("end", ["", "/"])
def test_other_methods_on_a_governed_path_are_not_allowed(gateway: Gateway, method: str, path: str, end: str) -> None:
    before = len(gateway.upstream.exchanges)
    with gateway.call(b"{}", method=method, path=f"/v1/{path}{end}") as call:
        assert (call.status, call.header("allow")) == (405, "POST")
        assert call.json()["error"]["message"] == f"{method} is not allowed on /v1/{path}. Send a POST request."
    assert len(gateway.upstream.exchanges) == before


def test_listed_paths_pass(start_gateway: Callable[..., Gateway], log: io.StringIO) -> None:
    gateway = start_gateway(passthrough="batches, responses/*")
    gateway.upstream.script(json_reply({}))
    for method, path, status in (
        ("POST", "/v1/batches", 200),
        ("GET", "/v1/batches/b", 200),
        ("GET", "/v1/responses/resp_1", 200),
        ("GET", "/v1/threads/t", 403),
        ("POST", "/v1/responses/../chat/completions", 400),
    ):
        with gateway.call(b"{}", method=method, path=path) as call:
            call.read_all()
            assert call.status == status, path
    assert len(gateway.upstream.exchanges) == 3
    assert "passthrough_everything" not in log.getvalue()


def test_setting_opens_every_path_and_warns_at_startup(start_gateway: Callable[..., Gateway], log: io.StringIO) -> None:
    gateway = start_gateway(passthrough="*")
    gateway.upstream.script(json_reply({}))
    for method, path in CLOSED:
        with gateway.call(b"{}", method=method, path=path) as call:
            call.read_all()
            assert call.status == 200, path
    assert len(gateway.upstream.exchanges) == len(CLOSED)
    (line,) = [line for line in log.getvalue().splitlines() if "passthrough_everything" in line]
    assert json.loads(line)["level"] == "warning"
