"""Several upstreams behind one gateway: routing, fallbacks, and what an operator sees of them."""

import json
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.support.apis.scripted_answers import answer, joined, streamed, whole
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import (
    DEADLINE_S,
    End,
    Exchange,
    Reply,
    ScriptedUpstream,
    closed_port,
    json_reply,
)

TEXT = "The basic plan costs 9 euros a month."
KEY = "sk-vendor-key-for-tests-only"
Start = Callable[..., Gateway]
Upstreams = dict[str, ScriptedUpstream]


@pytest.fixture
def two() -> Iterator[Upstreams]:
    """Two upstreams, ``first`` and ``second``, that work unless scripted otherwise."""
    upstreams = {name: ScriptedUpstream().start() for name in ("first", "second")}
    for upstream in upstreams.values():
        upstream.script(answer(TEXT, stream=False))
    yield upstreams
    for upstream in upstreams.values():
        upstream.close()


@pytest.fixture
def configured(
    start_gateway: Start, two: Upstreams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Gateway]:
    """Starts a gateway for the two upstreams, with additional lines for each in the file, and ``more`` at its end."""
    monkeypatch.setenv("VENDOR_KEY", KEY)

    def start(more: str = "", *, settings: Mapping[str, Any] | None = None, **lines: str) -> Gateway:
        file = tmp_path / "groundlane.toml"
        tables = [
            f'[[upstreams]]\nname = "{name}"\nbase_url = "{upstream.base_url}"\n{lines.get(name, "")}\n'
            for name, upstream in two.items()
        ]
        file.write_text("".join([*tables, more]), "utf-8")
        return start_gateway(config=str(file), **(settings or {}))

    return start


def request(model: str = "m", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "What does it cost?"}], **fields}


def ask(gateway: Gateway, model: str = "m", **fields: Any) -> dict[str, Any]:
    with gateway.call(request(model, **fields)) as call:
        body: dict[str, Any] = call.json()
        assert call.status == 200, body
    return body


def test_each_model_goes_to_its_upstream_with_the_right_key(configured: Start, two: Upstreams) -> None:
    gateway = configured(first='models = ["gpt-*"]\napi_key_env = "VENDOR_KEY"', second='models = ["o3", "llama*"]')
    ask(gateway, "gpt-4o")
    ask(gateway, "llama3:8b")
    first, second = two["first"].wait_exchange(), two["second"].wait_exchange()
    assert (first.json["model"], first.header("authorization")) == ("gpt-4o", f"Bearer {KEY}")
    assert (second.json["model"], second.header("authorization")) == ("llama3:8b", "Bearer sk-client-key")
    with gateway.call(request("mistral")) as call:
        error = call.json()["error"]
        assert (call.status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert gateway.trace(call.request_id).request["http_status"] == 404


def test_body_is_forwarded_unchanged_unless_a_name_changes(configured: Start, two: Upstreams) -> None:
    gateway = configured(first='models = ["m"]\nalias = { house = "vendor" }')
    raw = b'{ "model":"m",\n "messages":[{"role":"user","content":"caf\\u00e9"}], "seed":1.0 }'
    for body in (raw, raw.replace(b'"m"', b'"house"')):
        with gateway.call(body) as call:
            assert call.status == 200
            call.read_all()
    kept, renamed = two["first"].exchanges
    assert kept.body == raw
    assert renamed.json == {**json.loads(raw), "model": "vendor"}
    assert list(renamed.json) == ["model", "messages", "seed"]


DOCUMENTS = [{"id": 7, "snippet": TEXT, "score": 0.9, "extra": {"kept": True}}]


@pytest.mark.parametrize(("inject", "forwarded"), [("none", True), ("system", False)])
def test_documents_are_forwarded_to_upstreams_that_accept_them(
    configured: Start, two: Upstreams, inject: str, forwarded: bool
) -> None:
    gateway = configured(first='models = ["reads"]\naccepts_documents = true')
    extension = {"documents": DOCUMENTS, "grounding": {"inject": inject}}
    for model in ("reads", "does-not"):
        assert ask(gateway, model, **extension)["grounding"]["verdict"] == "supported"
    first, second = two["first"].wait_exchange().json, two["second"].wait_exchange().json
    assert first.get("documents") == (DOCUMENTS if forwarded else None)
    assert "documents" not in second
    assert "grounding" not in {**first, **second}


AWAY = Reply(accept=False)


@pytest.mark.parametrize("failure", [AWAY, json_reply({}, status=503)], ids=["lost", "503"])
@pytest.mark.parametrize("stream", [False, True])
def test_fallback_answers_and_the_operator_sees_the_failure(
    configured: Start, two: Upstreams, failure: Reply, stream: bool
) -> None:
    gateway = configured(
        first='models = ["m"]\nretries = 1\nfallback = ["second"]', second='models = []\nalias = { m = "stand-in" }'
    )
    two["first"].script(failure)
    two["second"].script(answer(TEXT, stream=stream))
    with gateway.call(request(stream=stream)) as call:
        assert call.status == 200
        assert call.read_all() == (joined(streamed(TEXT)) if stream else json.dumps(whole(TEXT)).encode())
    assert len(two["first"].exchanges) == 2
    exchange = two["second"].wait_exchange()
    assert exchange.json["model"] == "stand-in"
    assert exchange.header("authorization") is None
    items = gateway.admin.get("/upstreams").json()["items"]
    assert [(item["name"], item["health"]["attempts"], item["health"]["failures"]) for item in items] == [
        ("first", 2, 2),
        ("second", 1, 0),
    ]
    assert metric(gateway, "groundlane_upstream_errors_total") == 2
    assert gateway.trace(call.request_id).request["status"] == "completed"


def metric(gateway: Gateway, name: str) -> float:
    with gateway.call(method="GET", path="/metrics") as call:
        lines = call.read_all().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def test_nothing_is_retried_after_the_first_byte(configured: Start, two: Upstreams) -> None:
    gateway = configured(first='models = ["m"]\nretries = 3\nfallback = ["second"]')
    two["first"].script(Reply(chunks=streamed(TEXT)[:2], end=End.RESET))
    with gateway.call(request(stream=True)) as call:
        reading = call.reading()
    assert len(reading.errors) == 1
    assert (len(two["first"].exchanges), len(two["second"].exchanges)) == (1, 0)


def test_all_upstreams_failing_return_the_502_of_the_last(configured: Start, two: Upstreams) -> None:
    gateway = configured(first='models = ["m"]\nretries = 0\nfallback = ["second"]', second="retries = 0")
    two["first"].script(json_reply({}, status=503))
    two["second"].script(AWAY)
    with gateway.call(request()) as call:
        assert (call.status, call.json()["error"]["code"]) == (502, "upstream_unreachable")


def test_client_disconnect_ends_the_running_attempt(configured: Start, two: Upstreams) -> None:
    gateway = configured(first='models = ["m"]\nretries = 0\nfallback = ["second"]')
    two["first"].script(AWAY)
    two["second"].script(Reply(hold_head=True, gated=True, chunks=[b"never"]))
    call = gateway.call(request())
    exchange: Exchange = two["second"].wait_exchange()
    call.abort()
    assert exchange.peer_closed.wait(DEADLINE_S)
    (row,) = gateway.rows(1)
    assert row["status"] == "cancelled"


def test_first_byte_and_silence_have_separate_limits(configured: Start, two: Upstreams) -> None:
    gateway = configured(
        first='models = ["slow"]\nretries = 0\ntimeouts = { first_byte = 0.2 }',
        second="retries = 0\ntimeouts = { first_byte = 20, between_bytes = 0.2 }",
    )
    two["first"].script(Reply(end=End.NEVER))
    two["second"].script(Reply(chunks=streamed(TEXT)[:2], end=End.NEVER, hold_head=True, delays_s=[0.5]))
    with gateway.call(request("slow")) as call:
        assert (call.status, call.json()["error"]["code"]) == (504, "upstream_timeout")
    with gateway.call(request("other", stream=True)) as call:
        assert call.status == 200
        (error,) = call.reading().errors
    assert error["message"] == "The upstream did not respond in time."


def test_azure_is_called_with_its_own_url_and_header(configured: Start, two: Upstreams) -> None:
    gateway = configured(
        first='api = "azure"\napi_version = "2024-10-21"\napi_key_env = "VENDOR_KEY"\nmodels = []\n'
        'alias = { gpt-4o = "my deployment" }'
    )
    ask(gateway, "gpt-4o")
    exchange = two["first"].wait_exchange()
    assert exchange.path == "/v1/openai/deployments/my%20deployment/chat/completions?api-version=2024-10-21"
    assert (exchange.header("api-key"), exchange.header("authorization")) == (KEY, None)


def test_ungoverned_paths_are_routed_by_their_json(configured: Start, two: Upstreams) -> None:
    gateway = configured(first='models = ["gpt-*"]', second='alias = { embed = "vendor-embed" }')
    raw = b'{ "model":"text-embed", "input":"x" }'
    with gateway.call(raw, path="/v1/embeddings") as call:
        assert call.status == 200
        call.read_all()
    with gateway.call({"model": "embed", "input": "x"}, path="/v1/embeddings") as call:
        call.read_all()
    assert [exchange.body for exchange in two["second"].exchanges] == [raw, b'{"model":"vendor-embed","input":"x"}']
    for body in (b'{"input":"x"}', b"[1]", b"not json", b""):
        with gateway.call(body, path="/v1/files") as call:
            call.read_all()
    assert [exchange.body for exchange in two["first"].exchanges] == [b'{"input":"x"}', b"[1]", b"not json", b""]


def test_path_and_query_reach_the_upstream_unchanged(gateway: Gateway) -> None:
    gateway.upstream.script(json_reply({}))
    for path in ("/v1/files/a%2Fb?after=c%2Fd%20e&x=%7E~", "/v1/models?q=a,b;c:d@e+f"):
        with gateway.call(method="GET", path=path) as call:
            assert call.status == 200
            call.read_all()
    assert [exchange.path for exchange in gateway.upstream.exchanges] == [
        "/v1/files/a%2Fb?after=c%2Fd%20e&x=%7E~",
        "/v1/models?q=a,b;c:d@e+f",
    ]


def test_interrupted_passthrough_reply_is_visibly_incomplete(gateway: Gateway) -> None:
    gateway.upstream.script(Reply(headers={"content-type": "audio/wav"}, chunks=[b"half"], end=End.RESET))
    with gateway.call(method="GET", path="/v1/files/f-1/content") as call:
        assert call.status == 200
        with pytest.raises(HTTPException):
            call.read_all()
        assert call.raw in (b"", b"half")


def test_operator_sees_the_upstreams_without_secrets(configured: Start) -> None:
    gateway = configured(
        first='api_key_env = "VENDOR_KEY"\nmodels = ["gpt-*"]\nheaders = { X-Token = "hush" }\nfallback = ["second"]'
    )
    response = gateway.admin.get("/upstreams")
    body: Mapping[str, Any] = response.json()
    assert (response.status_code, body["next_cursor"]) == (200, None)
    first, second = body["items"]
    assert (first["name"], first["models"], first["fallback"]) == ("first", ["gpt-*"], ["second"])
    assert first["has_key"]
    assert (second["api"], second["models"], second["has_key"]) == ("openai", ["*"], False)
    assert not [secret for secret in (KEY, "hush") if secret in response.text]
    with gateway.call(method="GET", path="/admin/v1/upstreams") as call:
        assert call.status == 401


def test_policies_of_the_file_apply_from_each_start(configured: Start, tmp_path: Path) -> None:
    table = '[[policies]]\nname = "fresh"\ncategory = "retrieval"\nrules = {{ max_source_age_days = {} }}\n'
    database = {"database_url": f"sqlite+aiosqlite:///{tmp_path}/shared.db"}

    def versions(days: int) -> list[tuple[str, int, int]]:
        gateway = configured(table.format(days), settings=database)
        items = gateway.admin.get("/policies").json()["items"]
        with gateway.call(request(documents=[{"text": TEXT, "age_days": 20, "relevance_score": 1}])) as call:
            assert call.status == (400 if days < 20 else 200)
        return [(item["name"], item["version"], item["rules"]["max_source_age_days"]) for item in items]

    assert versions(10) == [("fresh", 1, 10)]
    assert versions(30) == [("fresh", 2, 30)]
    assert versions(30) == [("fresh", 2, 30)]


def test_unreachable_upstream_is_replaced_by_its_fallback(start_gateway: Start, two: Upstreams, tmp_path: Path) -> None:
    file = tmp_path / "groundlane.toml"
    file.write_text(
        f'[[upstreams]]\nname = "gone"\nbase_url = "http://127.0.0.1:{closed_port()}/v1"\nfallback = ["here"]\n'
        f'[[upstreams]]\nname = "here"\nbase_url = "{two["first"].base_url}"\n',
        "utf-8",
    )
    assert ask(start_gateway(config=str(file)))["model"] == "test-model-1"
