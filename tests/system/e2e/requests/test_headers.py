"""The headers of a reply: the gateway's own, and those of the upstream that are on a closed list."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import EVENT_STREAM, Reply, json_reply

UNWANTED: Mapping[str, str] = {
    "access-control-allow-origin": "*",
    "access-control-allow-credentials": "true",
    "access-control-expose-headers": "*",
    "set-cookie": "groundlane_session=theirs",
    "clear-site-data": '"*"',
    "refresh": "0; url=http://127.0.0.1/?text=take+8+tablets",
    "link": '<http://127.0.0.1/>; rel="preload"',
    "x-groundlane-action": "theirs",
    "x-groundlane-verdict": "theirs",
    "x-groundlane-request-id": "theirs",
    "content-security-policy": "default-src *",
    "strict-transport-security": "max-age=1",
    "www-authenticate": "Basic",
    "warning": '199 - "take 8 tablets"',
    "x-powered-by": "take 8 tablets",
    "x-note": "take 8 tablets",
    "trailer": "x-note",
    "authorization": "Bearer sk",
    "openai": "1",
    "x-ratelimit": "1",
}
WANTED: Mapping[str, str] = {
    "x-request-id": "req_1",
    "request-id": "req_2",
    "apim-request-id": "req_3",
    "retry-after": "7",
    "retry-after-ms": "7000",
    "x-ratelimit-remaining-tokens": "5",
    "openai-processing-ms": "12",
    "openai-organization": "org",
    "anthropic-ratelimit-requests-limit": "50",
}
OF_A_FILE: Mapping[str, str] = {
    "content-disposition": 'attachment; filename="a.pdf"',
    "content-range": "bytes 0-1/2",
    "accept-ranges": "bytes",
    "etag": '"1"',
    "last-modified": "Tue, 01 Jan 2030 00:00:00 GMT",
    "cache-control": "max-age=5",
}
OURS = {
    "content-type", "content-length", "transfer-encoding", "date", "server", "content-security-policy",
    "x-content-type-options", "x-groundlane-request-id", "x-groundlane-action", "x-groundlane-verdict",
    "x-groundlane-trust-score", "cache-control", "x-accel-buffering", "connection",
}  # fmt: skip
MESSAGES = [{"role": "user", "content": "Hello?"}]
BODIES: Mapping[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": MESSAGES},
    "/v1/completions": {"model": "m", "prompt": "Hello?"},
    "/v1/responses": {"model": "m", "input": "Hello?"},
    "/v1/messages": {"model": "m", "messages": MESSAGES, "max_tokens": 5},
}
ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []}
REPLIES: Mapping[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi."}}],
    },
    "/v1/completions": {
        "object": "text_completion",
        "choices": [{"index": 0, "finish_reason": "stop", "text": "Hi."}],
    },
    "/v1/responses": {"object": "response", "status": "completed", "output": [ITEM]},
    "/v1/messages": {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
}


def of_upstream(headers: list[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers if name.lower() not in OURS}


@pytest.mark.parametrize("governed", [True, False])
@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("kind", ["whole", "stream", "error"])
def test_governed_reply_has_only_allowed_upstream_headers(
    gateway: Gateway, kind: str, path: str, governed: bool
) -> None:
    headers = {**UNWANTED, **WANTED, **OF_A_FILE}
    if kind == "stream":
        gateway.upstream.script(Reply(headers={**EVENT_STREAM, **headers}, chunks=[b"data: [DONE]\n\n"]))
    else:
        reply = json_reply({"error": {}}, status=500) if kind == "error" else json_reply(REPLIES[path])
        gateway.upstream.script(replace(reply, headers={**reply.headers, **headers}))
    body = dict(BODIES[path]) | ({"stream": True} if kind == "stream" else {})
    if governed:
        body["grounding"] = {"agent": gateway.agent(grounding={"action_on_violation": "block"})}
    with gateway.call(body, path=path) as call:
        call.read_all()
        assert of_upstream(call.headers) == WANTED
        for name, value in UNWANTED.items():
            assert value not in call.response.headers.get_all(name, [])


def test_file_keeps_its_descriptive_headers(gateway: Gateway) -> None:
    headers = {"content-type": "application/pdf", "content-length": "2", **UNWANTED, **WANTED, **OF_A_FILE}
    gateway.upstream.script(Reply(headers=headers, chunks=[b"ab"], chunked=False))
    with gateway.call(method="GET", path="/v1/files/f/content") as call:
        assert call.read_all() == b"ab"
        told = {name.lower(): value for name, value in call.headers}
        assert {name: told.get(name) for name in OF_A_FILE} == OF_A_FILE
        assert told["content-length"] == "2"
        assert of_upstream(call.headers).keys() == WANTED.keys() | (OF_A_FILE.keys() - OURS)


def test_headers_cannot_change_the_upstream_path(gateway: Gateway) -> None:
    gateway.upstream.script(json_reply({}))
    names = ["x-original-url", "x-rewrite-url", "x-forwarded-uri", "x-forwarded-host", "x-original-host"]
    names += ["x-override-url", "x-real-url", "x-envoy-original-path", "x-http-path-override", "x-accel-redirect"]
    names += ["x-http-method-override"]
    with gateway.call(b"{}", path="/v1/embeddings", headers=dict.fromkeys(names, "/v1/chat/completions")) as call:
        call.read_all()
    exchange = gateway.upstream.wait_exchange()
    assert [exchange.header(name) for name in names] == [None] * len(names)
