"""Gateway keys through the real gateway: access, scope, limits, and no key is ever forwarded."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import anthropic
import httpx
import openai
import pytest

from app.auth import new_key
from app.auth.secrets import new_secret_key
from app.cli.main import main
from tests.support.gateways.live_gateway import UPSTREAM_KEY, Gateway, eventually
from tests.support.gateways.mock_upstream import Reply, json_reply

Start = Callable[..., Gateway]
CHAT: dict[str, Any] = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Hello?"}]}
ANSWER = {
    "id": "c-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4o-mini",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
}


@pytest.fixture
def locked(start_gateway: Start) -> Gateway:
    """A gateway that requires a key, in front of an upstream that gets the caller's own key unless it is a gateway
    key."""
    return start_gateway(require_keys=True, upstream_api_key=None)


def key(gateway: Gateway, **fields: Any) -> dict[str, Any]:
    answer = gateway.admin.post("/keys", json={"name": "bot", **fields})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def ask(gateway: Gateway, body: Any = CHAT, path: str = "/v1/chat/completions", **headers: str) -> httpx.Response:
    """Send a request with these headers, and without those that a client library would add."""
    gateway.upstream.script(json_reply(ANSWER))
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"http://127.0.0.1:{gateway.port}{path}", json=body, headers=named, timeout=20)


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


def sent(gateway: Gateway) -> str:
    """All headers sent upstream, and the target."""
    exchange = gateway.upstream.wait_exchange()
    return f"{exchange.path} {exchange.headers}"


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "api-key", "x-goog-api-key", "x-groundlane-key"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_key_is_accepted_in_every_header_and_not_forwarded(gateway: Gateway, header: str, path: str) -> None:
    made = key(gateway)
    text = f"Bearer {made['key']}" if header == "authorization" else made["key"]
    assert ask(gateway, path=path, **{header.replace("-", "_"): text}).status_code == 200
    headers = sent(gateway)
    assert "gl-" not in headers
    assert UPSTREAM_KEY in headers


def test_caller_can_send_the_upstream_key_as_well(locked: Gateway) -> None:
    made = key(locked)
    assert ask(locked, authorization="Bearer sk-mine", x_groundlane_key=made["key"]).status_code == 200
    headers = sent(locked)
    assert "sk-mine" in headers
    assert "gl-" not in headers


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/chat/completions", {}),
        ("/v1/chat/completions", {"authorization": "Bearer sk-unknown"}),
        ("/v1/completions", {"authorization": f"Bearer gl-abcd2345-{'x' * 43}"}),
        ("/v1/responses", {"x_groundlane_key": "nonsense"}),
        ("/v1/embeddings", {"authorization": "Basic Z2w6eA=="}),
        ("/v1/files/x", {}),
        ("/v1", {}),
        ("/mcp", {}),
        ("/mcp/x", {}),
    ],
)
def test_calls_without_a_gateway_key_are_rejected(locked: Gateway, path: str, headers: dict[str, str]) -> None:
    answer = ask(locked, path=path, **headers)
    assert answer.status_code == 401
    error = answer.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_api_key", None)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "x" * 43 not in answer.text
    assert locked.upstream.exchanges == []


def test_messages_api_rejects_in_its_own_format(locked: Gateway) -> None:
    answer = ask(locked, path="/v1/messages", x_api_key="sk-ant-unknown")
    assert answer.status_code == 401
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == "authentication_error"


def test_health_and_administration_need_no_key(locked: Gateway) -> None:
    assert httpx.get(f"http://127.0.0.1:{locked.port}/healthz").status_code == 200
    assert locked.admin.get("/keys").status_code == 200


def test_other_keys_pass_without_the_setting_but_invalid_gateway_keys_do_not(start_gateway: Start) -> None:
    gateway = start_gateway(upstream_api_key=None)
    assert ask(gateway, **bearer("sk-mine")).status_code == 200
    assert "sk-mine" in sent(gateway)
    assert ask(gateway, **bearer(new_key())).status_code == 401
    assert ask(gateway, **bearer(f"{key(gateway)['key']}x")).status_code == 401
    assert gateway.upstream.exchanges == []
    assert ask(gateway).status_code == 200


def test_key_in_the_url_or_two_keys_are_rejected(gateway: Gateway) -> None:
    one, other = key(gateway)["key"], key(gateway)["key"]
    assert ask(gateway, path=f"/v1/embeddings?key={one}").status_code == 401
    assert ask(gateway, authorization=f"Bearer {one}", x_api_key=other).status_code == 401
    assert gateway.upstream.exchanges == []
    assert ask(gateway, authorization=f"Bearer {one}", x_api_key=one).status_code == 200


def test_revoked_key_is_rejected_at_once(gateway: Gateway) -> None:
    made = key(gateway)
    assert ask(gateway, **bearer(made["key"])).status_code == 200
    assert gateway.admin.delete(f"/keys/{made['id']}").status_code == 204
    answer = ask(gateway, **bearer(made["key"]))
    assert answer.status_code == 401
    assert made["key"] not in answer.text


def test_keys_created_and_revoked_on_the_command_line_apply_within_a_second(
    start_gateway: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = start_gateway(require_keys=True)
    monkeypatch.setenv("GROUNDLANE_DATABASE_URL", f"sqlite+aiosqlite:///{gateway.database}")

    def groundlane(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["groundlane", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        return capsys.readouterr().out.strip()

    made = groundlane("keys", "create", "ci")
    eventually(lambda: ask(gateway, **bearer(made)).status_code == 200 or None, "the key is known")
    groundlane("keys", "revoke", made[:11])
    eventually(lambda: ask(gateway, **bearer(made)).status_code == 401 or None, "the key is revoked")


def test_invalid_keys_leave_no_event(start_gateway: Start) -> None:
    gateway = start_gateway(require_keys=True)
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}") as client:
        answers = [client.post("/v1/chat/completions", json=CHAT, headers=bearer(new_key())) for _ in range(200)]
    assert {answer.status_code for answer in answers} == {401}
    assert ask(gateway, **bearer(key(gateway)["key"])).status_code == 200
    assert len(gateway.rows(1)) == 1
    metrics = httpx.get(f"http://127.0.0.1:{gateway.port}/metrics").text
    assert 'groundlane_keys_refused_total{reason="wrong"} 200.0' in metrics


def test_request_row_names_the_key_by_its_prefix(gateway: Gateway) -> None:
    made = key(gateway)
    answer = ask(gateway, **bearer(made["key"]))
    assert gateway.trace(answer.headers["x-groundlane-request-id"]).request["key_prefix"] == made["prefix"]


def test_forbidden_model_is_rejected_by_name_and_logged(gateway: Gateway) -> None:
    made = key(gateway, models=["gpt-4o*"])
    assert ask(gateway, **bearer(made["key"])).status_code == 200
    answer = ask(gateway, CHAT | {"model": "o3"}, **bearer(made["key"]))
    assert answer.status_code == 403
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("model_not_allowed", "model")
    assert "'o3'" in error["message"]
    row = gateway.trace(answer.headers["x-groundlane-request-id"]).request
    assert (row["http_status"], row["key_prefix"], row["model"]) == (403, made["prefix"], "o3")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/embeddings", {"model": "gpt-4o", "input": "x"}, 200),
        ("/v1/embeddings", {"model": "text-embedding-3-small", "input": "x"}, 403),
        ("/v1/embeddings", {"input": "x"}, 403),
        ("/v1/embeddings", b'{"model": "o3", "model": "gpt-4o"}', 200),
        ("/v1/batches", {"input_file_id": "file-1"}, 403),
        ("/v1/audio/transcriptions", b"--x\r\n", 403),
    ],
)
def test_key_for_some_models_is_limited_to_them(gateway: Gateway, path: str, body: Any, status: int) -> None:
    made = key(gateway, models=["gpt-4o"])
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    gateway.upstream.script(json_reply({}))
    with gateway.call(data, path=path, headers=bearer(made["key"])) as call:
        call.read_all()
        assert call.status == status
    assert len(gateway.upstream.exchanges) == (status == 200)
    for exchange in gateway.upstream.exchanges:
        assert b"o3" not in exchange.body


def form(*parts: tuple[str, str], boundary: str = "b") -> bytes:
    written = (f"--{boundary}\r\nContent-Disposition: {name}\r\n\r\n{value}\r\n" for name, value in parts)
    return ("".join(written) + f"--{boundary}--\r\n").encode()


MODEL, FILE = 'form-data; name="model"', 'form-data; name="file"; filename="a.wav"'


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("multipart/form-data; boundary=b", form((MODEL, "gpt-4o"), (FILE, "RIFF")), 200),
        ("multipart/form-data; boundary=b", form((FILE, "RIFF"), (MODEL, "gpt-4o")), 200),
        ("multipart/form-data; boundary=b", form((MODEL, "o3"), (FILE, "RIFF")), 403),
        ("multipart/form-data; boundary=b", form((MODEL, "gpt-4o"), (MODEL, "o3")), 403),
        ("multipart/form-data; boundary=b", form((MODEL, "gpt-4o"), ('form-data; name="Model"', "o3")), 403),
        ("multipart/form-data; boundary=b", form((MODEL, "gpt-4o"), ("form-data; name=model", "o3")), 403),
        ("multipart/form-data; boundary=b", form((MODEL, "gpt-4o"), ("form-data; name*=utf-8''model", "o3")), 403),
        ("multipart/form-data; boundary=b", form(('form-data; name="x"; name="model"', "gpt-4o")), 403),
        ("multipart/form-data; boundary=b", form((FILE, "RIFF")), 403),
        ("multipart/form-data; boundary=b", b"preamble\r\n" + form((MODEL, "gpt-4o")), 403),
        ("multipart/form-data; boundary=c", form((MODEL, "gpt-4o")), 403),
        ("multipart/form-data; boundary=b", b'{"model": "gpt-4o"}', 403),
        ("multipart/form-data", form((MODEL, "gpt-4o")), 403),
        ("application/x-www-form-urlencoded", b"model=gpt-4o&x=1", 200),
        ("application/x-www-form-urlencoded", b"model=gpt-4o&model=o3", 403),
    ],
)
def test_model_in_a_form_counts(gateway: Gateway, kind: str, body: bytes, status: int) -> None:
    made = key(gateway, models=["gpt-4o"])
    gateway.upstream.script(json_reply({}))
    headers = {**bearer(made["key"]), "content-type": kind}
    with gateway.call(body, path="/v1/audio/transcriptions", headers=headers) as call:
        call.read_all()
        assert call.status == status
    assert [exchange.body for exchange in gateway.upstream.exchanges] == ([body] if status == 200 else [])


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/deployments/o3/embeddings", {"model": "gpt-4o", "input": "x"}, 403),
        ("/v1/deployments/o%33/embeddings", {"model": "gpt-4o", "input": "x"}, 403),
        ("/v1/engines/o3/embeddings", {"input": "x"}, 403),
        ("/v1/engines/gpt-4o/embeddings", {"input": "x"}, 200),
        ("/v1/engines/gpt-4o/embeddings", {"model": "o3", "input": "x"}, 403),
        ("/v1/models/o3:generateContent", {"model": "gpt-4o"}, 403),
        ("/v1/embeddings?model=o3", {"model": "gpt-4o", "input": "x"}, 403),
        ("/v1/embeddings", {"model": "gpt-4o", "models": ["o3"], "input": "x"}, 403),
        ("/v1/embeddings", {"model": ["o3"], "input": "x"}, 403),
    ],
)
def test_model_in_a_url_counts(start_gateway: Callable[..., Gateway], path: str, body: Any, status: int) -> None:
    gateway = start_gateway(passthrough="*")
    made = key(gateway, models=["gpt-4o"])
    gateway.upstream.script(json_reply({}))
    answer = ask(gateway, body, path, **bearer(made["key"]))
    assert answer.status_code == status
    assert len(gateway.upstream.exchanges) == (status == 200)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/rerank", {"documents": ["mine", {"text": "x", "collection": "kb"}]}, 200),
        ("POST", "/v1/rerank", {"documents": ["mine", {"text": "x", "collection": "hr"}]}, 403),
        ("POST", "/v1/vector_stores/vs_1/search", {"query": "x"}, 403),
        ("GET", "/v1/files/file_1/content", None, 403),
        ("GET", "/v1/models", None, 200),
    ],
)
def test_collections_of_a_key_apply_on_every_path(
    gateway: Gateway, method: str, path: str, body: Any, status: int
) -> None:
    made = key(gateway, collections=["kb"])
    gateway.upstream.script(json_reply({}))
    with gateway.call(body, method=method, path=path, headers=bearer(made["key"])) as call:
        assert call.status == status
        if status == 403:
            assert call.json()["error"]["code"] == "collection_not_allowed"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {**CHAT, "models": ["gpt-4o-mini", "o3"]}),
        ("/v1/chat/completions", {**CHAT, "fallbacks": [{"model": "o3"}]}),
        ("/v1/chat/completions", {**CHAT, "fallbacks": [{"o3": []}]}),
        ("/v1/chat/completions", {**CHAT, "models": "o3"}),
        ("/v1/chat/completions", {**CHAT, "engine": "o3"}),
        ("/v1/chat/completions", {**CHAT, "Model": "o3"}),
        ("/v1/chat/completions", {**CHAT, "deployment_id": "o3"}),
        ("/v1/chat/completions", {**CHAT, "context_window_fallbacks": ["o3"]}),
        ("/v1/chat/completions", {**CHAT, "extra_body": {"model": "o3"}}),
        (
            "/v1/responses",
            {"model": "gpt-4o-mini", "input": "x", "tools": [{"type": "image_generation", "model": "o3"}]},
        ),
        ("/v1/chat/completions?model=o3", CHAT),
        ("/v1/chat/completions?api-version=1&deployment=o3", CHAT),
        ("/v1/embeddings", {"model": "gpt-4o-mini", "engine": "o3", "input": "x"}),
        ("/v1/chat/completions", {**CHAT, "model": "GPT-4O-MINI"}),
        ("/v1/chat/completions", {**CHAT, "model": " gpt-4o-mini"}),
        ("/v1/chat/completions", {**CHAT, "model": None}),
        ("/v1/completions", {"model": "o3", "prompt": "Hello?"}),
        ("/v1/responses", {"model": "gpt-4o-mini", "models": ["o3"], "input": "Hello?"}),
        ("/v1/responses", {"prompt": {"id": "pmpt_1"}}),
        ("/v1/messages", {"model": "o3", "max_tokens": 5, "messages": CHAT["messages"]}),
    ],
)
def test_no_other_field_can_name_a_forbidden_model(gateway: Gateway, path: str, body: Any) -> None:
    made = key(gateway, models=["gpt-4o-mini"])
    assert ask(gateway, body, path, **bearer(made["key"])).status_code == 403
    assert gateway.upstream.exchanges == []


@pytest.mark.parametrize("header", ["x_model", "x_litellm_model", "x_ms_deployment", "helicone_model_override"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_no_header_can_name_a_forbidden_model(gateway: Gateway, header: str, path: str) -> None:
    made = key(gateway, models=["gpt-4o-mini"])
    assert ask(gateway, CHAT, path, **bearer(made["key"]), **{header: "o3"}).status_code == 403
    assert ask(gateway, CHAT, path, **bearer(made["key"]), **{header: "gpt-4o-mini"}).status_code == 200


@pytest.mark.parametrize(("collection", "status"), [("kb", 200), (None, 200), ("hr", 403)])
def test_tool_results_cannot_add_other_collections(gateway: Gateway, collection: str | None, status: int) -> None:
    """If tool results are evidence, they may name no collection, but not one that the key doesn't allow."""
    made = key(gateway, collections=["kb"])
    agent = gateway.agent(grounding={"evidence_from_tools": True})
    found = json.dumps([{"text": "Permanent staff receive 25 days.", "collection": collection}])
    messages = [*CHAT["messages"], {"role": "tool", "tool_call_id": "c", "content": found}]
    answer = ask(gateway, CHAT | {"messages": messages, "grounding": {"agent": agent}}, **bearer(made["key"]))
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["error"]["param"].startswith("messages[1].content")


def test_key_for_some_models_may_read(gateway: Gateway) -> None:
    made = key(gateway, models=["gpt-4o"])
    gateway.upstream.script(Reply(headers={"content-type": "application/json"}, chunks=[b"{}"]))
    with gateway.call(method="GET", path="/v1/models", headers=bearer(made["key"])) as call:
        assert (call.status, call.read_all()) == (200, b"{}")


def test_documents_of_another_collection_are_rejected_by_position(gateway: Gateway) -> None:
    made = key(gateway, collections=["kb"])
    document = {"text": "Permanent staff receive 25 days.", "collection": "kb"}
    assert ask(gateway, CHAT | {"documents": [document]}, **bearer(made["key"])).status_code == 200
    for other in ({**document, "collection": "hr"}, {"text": "x"}):
        answer = ask(gateway, CHAT | {"documents": [document, other]}, **bearer(made["key"]))
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "collection_not_allowed"
        assert answer.json()["error"]["param"] == "documents[1]"


def test_rate_limited_key_gets_a_retry_after(gateway: Gateway) -> None:
    limited, free = key(gateway, requests_per_minute=2), key(gateway)
    assert [ask(gateway, **bearer(limited["key"])).status_code for _ in range(2)] == [200, 200]
    answer = ask(gateway, **bearer(limited["key"]))
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(answer.headers["retry-after"]) <= 30
    assert answer.headers["x-ratelimit-limit-requests"] == "2"
    assert answer.headers["x-ratelimit-remaining-requests"] == "0"
    assert answer.headers["x-ratelimit-reset-requests"].endswith("s")
    assert ask(gateway, **bearer(free["key"])).status_code == 200
    messages = ask(gateway, path="/v1/messages", x_api_key=limited["key"])
    assert (messages.status_code, messages.json()["error"]["type"]) == (429, "rate_limit_error")


LEFT = "x-ratelimit-remaining-requests"


def test_every_path_counts_and_reports_remaining_requests(gateway: Gateway) -> None:
    made = key(gateway, requests_per_minute=12)
    run = ask(gateway, {"agent": None}, "/v1/runs", **bearer(made["key"]))
    calls: list[tuple[str, Any]] = [
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", {"model": "m", "prompt": "Hello?"}),
        ("/v1/responses", {"model": "m", "input": "Hello?"}),
        ("/v1/embeddings", {"model": "m", "input": "Hello?"}),
        ("/v1/grounding/check", {"text": "Hello?", "sources": []}),
        (f"/v1/runs/{run.json()['run_id']}/grounding", {}),
        ("/v1/runs/run_0/grounding", {}),
        ("/v1/chat/completions", {"model": "m"}),
    ]
    answers = [run, *(ask(gateway, body, path, **bearer(made["key"])) for path, body in calls)]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 200, 200, 200, 200, 404, 400]
    answers.append(ask(gateway, path="/mcp", **bearer(made["key"])))
    left = [int(answer.headers[LEFT]) for answer in answers]
    assert left[0] == 11
    assert left[-1] < 11  # 2, unless the bucket refilled meanwhile
    assert {answer.headers["x-ratelimit-limit-requests"] for answer in answers} == {"12"}
    assert LEFT not in ask(gateway, **bearer(key(gateway)["key"])).headers


@pytest.mark.parametrize(("status", "told"), [(200, ["1"]), (429, ["77"])])
def test_reported_limit_is_the_one_of_the_caller(gateway: Gateway, status: int, told: list[str]) -> None:
    """The upstream's rate limit headers are replaced by those for the gateway's key; a rejected caller learns about the
    limit."""
    headers = {"x-ratelimit-remaining-requests": "77", "x-ratelimit-remaining-tokens": "5"}
    gateway.upstream.script(json_reply(ANSWER, status=status, headers=headers))
    with gateway.call(CHAT, headers=bearer(key(gateway, requests_per_minute=2)["key"])) as call:
        call.read_all()
        assert call.status == status
        assert [value for name, value in call.headers if name == LEFT] == told
        assert [value for name, value in call.headers if name == "x-ratelimit-remaining-tokens"] == ["5"]


@pytest.mark.parametrize("globs", [["ci-*"], ["gl-*"]])
def test_policy_can_be_scoped_by_keys(gateway: Gateway, globs: list[str]) -> None:
    gateway.policy("retrieval", {"require_documents": True, "min_chunks": 5, "action_on_chunk_violation": "block"},
                   scope={"keys": globs, "agents": [f"of-{globs[0]}"]})  # fmt: skip
    body = CHAT | {"grounding": {"agent": f"of-{globs[0]}"}}
    assert ask(gateway, body, **bearer(key(gateway, name="ci-runner")["key"])).status_code == 400
    assert ask(gateway, body, **bearer("sk-any")).status_code == 200


def test_stored_secret_is_used_as_upstream_key_at_once(start_gateway: Start) -> None:
    gateway = start_gateway(upstream_api_key="secret:openai", secret_key=new_secret_key())
    answer = ask(gateway)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_key_missing")
    for value in ("sk-first", "sk-second"):
        assert gateway.admin.put("/secrets/openai", json={"value": value}).status_code == 200
        assert ask(gateway, authorization="Bearer sk-mine").status_code == 200
        headers = sent(gateway)
        assert value in headers
        assert "sk-mine" not in headers
    assert "sk-" not in gateway.admin.get("/upstreams").text


def test_keys_work_while_the_database_is_unavailable(start_gateway: Start) -> None:
    gateway = start_gateway(require_keys=True)
    made = key(gateway)
    with closing(sqlite3.connect(gateway.database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert ask(gateway, **bearer(made["key"])).status_code == 200
        assert ask(gateway, **bearer(new_key())).status_code == 401


def test_official_clients_recognise_each_rejection(gateway: Gateway) -> None:
    made = key(gateway, models=["gpt-4o-mini"], requests_per_minute=3)
    messages: Any = [{"role": "user", "content": "Hello?"}]

    def openai_client(text: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=gateway.base_url, api_key=text, max_retries=0)

    gateway.upstream.script(json_reply(ANSWER))
    with openai_client(made["key"]) as client:
        reply = client.chat.completions.create(model="gpt-4o-mini", messages=messages)
        assert reply.choices[0].message.content == "Hello."
        with pytest.raises(openai.PermissionDeniedError, match="'o3'"):
            client.chat.completions.create(model="o3", messages=messages)
        with pytest.raises(openai.PermissionDeniedError):
            client.embeddings.create(model="text-embedding-3-small", input="x")
        with pytest.raises(openai.RateLimitError, match="requests per minute"):
            client.models.list()
    with openai_client(new_key()) as client, pytest.raises(openai.AuthenticationError, match="unknown or revoked"):
        client.models.list()
    address = gateway.base_url.removesuffix("/v1")
    with (
        anthropic.Anthropic(base_url=address, api_key=new_key(), max_retries=0) as other,
        pytest.raises(anthropic.AuthenticationError, match="unknown or revoked"),
    ):
        other.messages.create(model="claude-haiku", max_tokens=10, messages=messages)
