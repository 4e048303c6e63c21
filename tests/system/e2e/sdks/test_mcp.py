"""The MCP server of a live gateway, with the official SDK's client, and with handwritten requests."""

import asyncio
import json
import re
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.client.client import Client
from mcp_types import CallToolResult, TextContent

from app.api.mcp import endpoint
from app.text_checks.service import TextChecks
from judges.types import Label
from tests.support.gateways.live_gateway import Gateway

PAGE = Path(__file__).parents[4] / "docs" / "apis" / "mcp.md"
LIMIT = "Premium users get 1000 requests per minute."
LIE = "Support answers at once."
ARGUMENTS = {"text": LIMIT, "sources": [LIMIT]}
HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@pytest.fixture
def by_hand(gateway: Gateway) -> Iterator[httpx.Client]:
    """A client that sends scripted requests."""
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", headers=HEADERS) as client:
        yield client


def message(method: str, params: Any = None, **fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}, **fields}


def call(arguments: Any = None, name: str = "check_grounding") -> dict[str, Any]:
    return message("tools/call", {"name": name, "arguments": ARGUMENTS if arguments is None else arguments})


def use(gateway: Gateway, mode: str, do: Callable[[Client], Awaitable[Any]]) -> Any:
    """The result of ``do`` with an SDK client of the given era of the protocol."""

    async def main() -> Any:
        async with Client(f"http://127.0.0.1:{gateway.port}/mcp", mode=mode) as client:
            return await do(client)

    return asyncio.run(main())


# Through the SDK


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_client_discovers_the_tool_and_its_parameters(gateway: Gateway, mode: str) -> None:
    async def look(client: Client) -> Any:
        return client.server_info, (await client.list_tools()).tools

    server, (tool,) = use(gateway, mode, look)
    assert server.name == "groundlane"
    assert tool.name == "check_grounding"
    assert tool.input_schema["required"] == ["text"]
    assert set(tool.input_schema["properties"]) == {"text", "question", "sources", "documents", "policy", "options"}
    assert tool.annotations.read_only_hint


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_tool_answers_like_the_http_path(gateway: Gateway, by_hand: httpx.Client, mode: str) -> None:
    gateway.judge.labels = {LIE: Label.CONTRADICTED}
    documents = [{"text": f"{LIMIT} Support answers within two days.", "id": "limits"}]
    arguments = {"text": f"{LIMIT} {LIE}", "documents": documents}

    async def check(client: Client) -> CallToolResult:
        # The client checks the result against the schema that the tool promises.
        return await client.call_tool("check_grounding", arguments)

    result = use(gateway, mode, check)
    assert not result.is_error
    found = result.structured_content
    assert not found["grounded"]
    assert [claim["verdict"] for claim in found["claims"]] == ["supported", "contradicted"]
    (text,) = result.content
    assert isinstance(text, TextContent)
    assert json.loads(text.text) == found
    over_http = by_hand.post("/v1/grounding/check", json=arguments).json()
    of_the_call = {"request_id", "judge"}
    assert {name: found[name] for name in found if name not in of_the_call} == {
        name: over_http[name] for name in over_http if name not in of_the_call
    }


def test_check_is_in_the_event_log(gateway: Gateway) -> None:
    async def check(client: Client) -> Any:
        return (await client.call_tool("check_grounding", ARGUMENTS)).structured_content

    request = gateway.trace(use(gateway, "auto", check)["request_id"]).request
    assert (request["api"], request["verdict"]) == ("grounding.check", "supported")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "text"),
        ({"text": LIMIT, "sources": [7]}, "sources[0]"),
        ({"text": LIMIT, "sources": [], "documents": []}, "sources"),
        ({"text": LIMIT, "options": {"max_claims": 0}}, "options.max_claims"),
        ({"text": LIMIT, "policy": "of nobody"}, "policy"),
        ({"text": LIMIT, "colour": "red"}, "colour"),
    ],
)
def test_invalid_argument_is_named_to_the_model(by_hand: httpx.Client, arguments: dict[str, Any], told: str) -> None:
    result = by_hand.post("/mcp", json=call(arguments)).json()["result"]
    assert result["isError"]
    assert result["content"][0]["text"].startswith(f"{told}:")
    assert "structuredContent" not in result


# By hand


def test_single_post_without_a_session_suffices(by_hand: httpx.Client) -> None:
    answer = by_hand.post("/mcp", json=call(), headers={"accept": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert "mcp-session-id" not in answer.headers
    assert answer.json()["result"]["structuredContent"]["grounded"]
    assert by_hand.post("/mcp/", json=call()).json()["result"]["structuredContent"]["grounded"]


def test_handshake_of_earlier_revisions_works(by_hand: httpx.Client) -> None:
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    begun = by_hand.post("/mcp", json=message("initialize", client)).json()["result"]
    assert begun["protocolVersion"] == "2025-06-18"
    assert begun["capabilities"]["tools"] == {"listChanged": False}
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert by_hand.post("/mcp", json=initialized).status_code == 202


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (message("tools/teach"), -32601),
        (call(name="check_spelling"), -32602),
        (message("tools/call", {"name": "check_grounding", "arguments": []}), -32602),
    ],
    ids=["method", "tool", "arguments"],
)
def test_unknown_methods_and_tools_are_errors(by_hand: httpx.Client, body: Any, code: int) -> None:
    assert by_hand.post("/mcp", json=body).json()["error"]["code"] == code


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b'"text"', b'{"jsonrpc": "1.0"}', b"\xff\xfe", b'{"jsonrpc":"2.0","id":1}']
)
def test_malformed_message_is_rejected(by_hand: httpx.Client, content: bytes) -> None:
    answer = by_hand.post("/mcp", content=content)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in (-32700, -32600, -32602)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_only_post_is_served(by_hand: httpx.Client, method: str) -> None:
    answer = by_hand.request(method, "/mcp")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json() == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32600, "message": "Only POST is supported."},
    }


def test_paths_below_are_not_found(by_hand: httpx.Client) -> None:
    assert by_hand.post("/mcp/more", json=call()).status_code == 404


def test_body_too_large_is_refused(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(max_body_bytes=2_000)
    url = f"http://127.0.0.1:{gateway.port}/mcp"
    assert httpx.post(url, json=call(), headers=HEADERS).status_code == 200
    too_large = call({"text": "a" * 2_000})
    assert httpx.post(url, json=too_large, headers=HEADERS).status_code == 413
    parts = iter([json.dumps(too_large).encode()])  # without a declared length
    assert httpx.post(url, content=parts, headers=HEADERS).status_code == 413


def test_internal_error_reveals_nothing(by_hand: httpx.Client, monkeypatch: pytest.MonkeyPatch, log: Any) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(TextChecks, "check", fail)
    answer = by_hand.post("/mcp", json=call())
    assert answer.json()["error"]["code"] == -32603
    assert "hunter2" not in answer.text
    assert "mcp_call_failed" in log.getvalue()


def test_texts_of_a_check_are_not_logged(by_hand: httpx.Client, log: Any) -> None:
    by_hand.post("/mcp", json=call({"text": "Secret plans.", "sources": ["Secret plans."]}))
    assert "Secret" not in log.getvalue()


# Who may call


def test_pages_of_other_machines_are_rejected(by_hand: httpx.Client) -> None:
    for name, value, status in (
        ("host", "evil.example", 421),
        ("host", "evil.example:8080", 421),
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "http://localhost:3000", 200),
    ):
        answer = by_hand.post("/mcp", json=call(), headers={name: value})
        assert answer.status_code == status, (name, value)
        assert ("error" in answer.json()) == (status != 200)


def test_keys_are_required_as_elsewhere(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(require_keys=True)
    url = f"http://127.0.0.1:{gateway.port}/mcp"
    assert httpx.post(url, json=call(), headers=HEADERS).status_code == 401
    made = gateway.admin.post("/keys", json={"name": "agent", "collections": ["kb"]})
    key = made.json()["key"]
    headers = {**HEADERS, "authorization": f"Bearer {key}"}
    allowed = {"text": LIMIT, "documents": [{"text": LIMIT, "collection": "kb"}]}
    result = httpx.post(url, json=call(allowed), headers=headers).json()["result"]
    assert gateway.trace(result["structuredContent"]["request_id"]).request["key_prefix"] == key[:11]
    other = {"text": LIMIT, "documents": [{"text": LIMIT, "collection": "hr"}]}
    assert httpx.post(url, json=call(other), headers=headers).json()["result"]["isError"]


# The page


def test_documented_examples_work(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text("utf-8").replace("localhost:8080", f"127.0.0.1:{gateway.port}")
    (python,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(python, "example", "exec"), {})
    assert capsys.readouterr().out == "True 1/1 claims supported\n"
    (curl,) = re.findall(r"```sh\n(curl .*?)```", page, re.DOTALL)
    answer = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, check=True, timeout=60).stdout
    assert json.loads(answer)["result"]["structuredContent"]["grounded"]


# Without the extra


def without(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Make the server behave as if ``module`` were not installed."""

    def absent(_: str) -> Any:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(endpoint, "import_module", absent)


def test_missing_extra_error_says_what_to_install(
    start_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "mcp.server")
    answer = httpx.post(f"http://127.0.0.1:{start_gateway().port}/mcp", json=call(), headers=HEADERS)
    assert answer.status_code == 501
    assert "pip install 'groundlane[mcp]'" in answer.json()["error"]["message"]


def test_other_missing_modules_are_not_mistaken_for_the_extra(
    start_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "mcpherson")
    answer = httpx.post(f"http://127.0.0.1:{start_gateway().port}/mcp", json=call(), headers=HEADERS)
    assert answer.status_code == 500
    assert "mcpherson" not in answer.text
