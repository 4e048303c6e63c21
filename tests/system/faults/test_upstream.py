"""Every way in which an upstream fails, compared with the page on faults."""

import io
import json
import re
from http.client import HTTPException
from typing import Any

import pytest

from tests.support.gateways.live_gateway import Gateway
from tests.system.faults.matrix import UPSTREAM_FAULTS, Told, UpstreamFault
from tests.system.faults.support.scripts import BODY, DOCUMENTS, MORE, TEXT, TRUE, good, half, head, script
from tests.system.faults.support.wire import Act, RawUpstream

WAYS = ("whole", "stream", "untouched")
"""A unary reply, a held stream, and a stream without a policy."""


def request(way: str = "whole", model: str = "patient") -> dict[str, Any]:
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "How long is the warranty?"}]}
    body["stream"] = way != "whole"
    return body if way == "untouched" else {**body, "documents": DOCUMENTS}


def errors(gateway: Gateway) -> dict[str, float]:
    """The upstream's failures so far, by kind."""
    with gateway.call(path="/metrics", method="GET") as call:
        text = call.read_all().decode()
    return {
        kind: float(count) for kind, count in re.findall(r'groundlane_upstream_errors_total{kind="(\w+)"} (\S+)', text)
    }


def code_of(body: bytes, *, stream: bool) -> str | None:
    """The code of the error at the end of ``body``, if any."""
    if not stream:
        told = json.loads(body)
        return told["error"]["code"] if "error" in told else None
    frames = body.split(b"\n\n")
    assert frames[-2:] == [b"data: [DONE]", b""], "a stream ends as one should, whatever happens"
    last = json.loads(frames[-3].removeprefix(b"data: ").decode("utf-8", "replace"))
    return last["error"]["code"] if "error" in last else None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", UPSTREAM_FAULTS, ids=lambda fault: fault.id)
def test_upstream(faulty_gateway: Gateway, raw: RawUpstream, log: io.StringIO, fault: UpstreamFault, way: str) -> None:
    """The client receives a complete answer, the event log and the metrics record the outcome, and the log the
    cause."""
    told: Told = fault.whole if way == "whole" else fault.stream
    raw.play(*script(fault.id, stream=way != "whole"))
    before = errors(faulty_gateway)
    with faulty_gateway.call(request(way, "hasty" if fault.hasty else "patient")) as call:
        body = call.read_all()
        status, request_id, action = call.status, call.request_id, call.header("x-groundlane-action")
    assert status == told.status, body
    assert code_of(body, stream=way != "whole" and status == 200) == told.code
    row = faulty_gateway.trace(request_id).request
    assert (row["status"], row["error"] is None) == (told.event, told.code is None)
    assert (action is None) is (status != 200 or way != "whole"), "no action where nothing was decided"
    counted = {kind: count - before.get(kind, 0.0) for kind, count in errors(faulty_gateway).items()}
    assert {kind: count for kind, count in counted.items() if count} == ({told.kind: 1.0} if told.kind else {})
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    mine = [line for line in lines if line.get("request_id") == request_id]
    assert [line["event"] for line in mine] == (["upstream_failed"] if fault.logged else []) + ["request"]
    assert not any("Traceback" in line.get("exception", "") for line in lines)
    assert TRUE not in log.getvalue()


def test_error_has_an_action_if_a_policy_decided(faulty_gateway: Gateway, raw: RawUpstream) -> None:
    """A block before the call, and a warning before a call that then fails."""
    agent = faulty_gateway.agent(retrieval={"max_source_age_days": 10})
    stale = {**request(), "documents": [{**DOCUMENTS[0], "age_days": 400}], "grounding": {"agent": agent}}
    with faulty_gateway.call(stale) as call:
        assert (call.status, call.header("x-groundlane-action")) == (400, "block")
    raw.play(Act.RESET)
    with faulty_gateway.call({**request(), "grounding": {"agent": agent}}) as call:
        assert (call.status, call.header("x-groundlane-action")) == (502, "allow")


def test_checked_text_is_delivered_when_a_stream_breaks(faulty_gateway: Gateway, raw: RawUpstream) -> None:
    raw.play(half(stream=True), Act.RESET)
    with faulty_gateway.call(request("stream")) as call:
        reading = call.reading()
    assert reading.text().startswith(TRUE)
    assert MORE not in reading.text()


def test_unsolicited_response_is_never_delivered(faulty_gateway: Gateway, raw: RawUpstream) -> None:
    """It arrives on an idle connection, like a server's 408 before it closes the connection."""
    stray = b'{"stray": true}'
    raw.play(good(stream=False), Act.PAUSE, head(stream=False, length=len(stray)) + stray, Act.ASK, good(stream=False))
    for _ in range(3):
        with faulty_gateway.call(request()) as call:
            body = call.json()
        assert body["choices"][0]["message"]["content"] == TEXT
        raw.settled.wait(0.2)


@pytest.mark.parametrize("count", [1, 30])
def test_interim_responses_are_skipped(faulty_gateway: Gateway, raw: RawUpstream, count: int) -> None:
    raw.play(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * count + good(stream=False))
    with faulty_gateway.call(request()) as call:
        assert call.json()["choices"][0]["message"]["content"] == TEXT


def test_stalled_upstream_is_cancelled(faulty_gateway: Gateway, raw: RawUpstream) -> None:
    """When the client has its error, the connection to the upstream is closed too."""
    raw.play(half(stream=True), Act.STALL)
    with faulty_gateway.call(request("stream", "hasty")) as call:
        call.read_all()
    assert raw.gone.wait(20)


@pytest.mark.parametrize(
    ("path", "fields", "early", "late"),
    [
        (
            "/v1/messages",
            {"max_tokens": 100},
            {"type": "error", "error": {"type": "api_error", "code": "upstream_unreachable", "kind": "upstream_error"}},
            b'"code":"upstream_unreachable"',
        ),
        ("/v1/completions", {"prompt": "Say."}, {"error": {"code": "upstream_unreachable"}}, b"upstream_unreachable"),
        ("/v1/responses", {"input": "Say."}, {"error": {"code": "upstream_unreachable"}}, b"upstream_unreachable"),
    ],
)
def test_each_api_has_its_own_error_format(
    faulty_gateway: Gateway, raw: RawUpstream, path: str, fields: dict[str, Any], early: dict[str, Any], late: bytes
) -> None:
    body = {**request(), **fields}
    raw.play(Act.RESET)
    with faulty_gateway.call(body, path=path) as call:
        told = call.json()
        assert call.status == 502
    assert {name: told["error"][name] for name in early["error"]} == early["error"]
    raw.play(head(stream=True), Act.PAUSE, Act.RESET)
    with faulty_gateway.call({**body, "stream": True}, path=path) as call:
        assert late in call.read_all()
        assert call.status == 200
        assert faulty_gateway.trace(call.request_id).request["status"] == "incomplete"


def test_passthrough_breaks_where_the_upstream_does(faulty_gateway: Gateway, raw: RawUpstream) -> None:
    """Nothing may be inserted between its bytes: the client's connection ends early."""
    raw.play(head(stream=False, length=len(BODY)) + BODY[:50], Act.RESET)
    embed = {"model": "patient", "input": "a"}
    with faulty_gateway.call(embed, path="/v1/embeddings") as call, pytest.raises((HTTPException, OSError)):
        call.response.read()
    raw.play(Act.RESET)
    with faulty_gateway.call(embed, path="/v1/embeddings") as call:
        assert (call.status, call.json()["error"]["code"]) == (502, "upstream_unreachable")
