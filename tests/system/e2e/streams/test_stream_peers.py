"""The stream cases in which client, upstream or network misbehave: disconnected, slow, closed, or compressed."""

import gzip
import io
import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from onnxruntime import InferenceSession

from tests.support.apis.reply_reader import read_stream, read_with_sdk
from tests.support.apis.scripted_answers import chunk
from tests.support.apis.stream_cases import load
from tests.support.apis.stream_modes import ANY_DOCUMENT, MODES, OBSERVE, body_of, play, reply_of
from tests.support.gateways.http_client import Call
from tests.support.gateways.live_gateway import ADMIN_TOKEN, UPSTREAM_KEY, Gateway, eventually
from tests.support.gateways.mock_upstream import DEADLINE_S, SEND_BUFFER, End, Reply, ScriptedUpstream, closed_port
from tests.system.e2e.streams.test_stream_cases import TEXTS, is_whole

StartGateway = Callable[..., Gateway]
ONE_SENTENCE = load("S14").chunks[:2]


def decoded(call: Call) -> bytes:
    """The body as a client decodes it according to its headers."""
    raw = call.read_all()
    encoding = call.header("content-encoding") or "identity"
    return gzip.decompress(raw) if encoding == "gzip" else raw


# Encodings


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("accepted", ["identity", "gzip"])
def test_s61_compressed_stream_is_readable_and_not_delayed(gateway: Gateway, mode: str, accepted: str) -> None:
    case = load("S61")
    gateway.upstream.script(reply_of(case, gated=True))
    body = body_of(gateway, case, mode)
    with gateway.call(body, headers={"accept-encoding": accepted}) as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(1)
        if mode in {"pass", "live"}:
            assert b"data: " in first_bytes(call)
        exchange.release(len(case.chunks))
        reading = read_stream(decoded(call))
    assert reading.text() == "Compressed answers work."
    is_whole(reading)
    if mode != "pass":
        assert "Compressed answers work." in gateway.judge.claims


def first_bytes(call: Call) -> bytes:
    """The decoded body so far."""
    raw = call.read_some()
    if call.header("content-encoding") == "gzip":
        return zlib.decompressobj(31).decompress(raw)
    return raw


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("accepted", ["identity", "gzip"])
def test_s62_compressed_body_is_readable_with_a_correct_length(gateway: Gateway, mode: str, accepted: str) -> None:
    case = load("S62")
    gateway.upstream.script(reply_of(case))
    with gateway.call(body_of(gateway, case, mode), headers={"accept-encoding": accepted}) as call:
        assert call.status == 200
        length = call.header("content-length")
        body = json.loads(decoded(call))
    assert length is None or int(length) == len(call.raw)
    sent = json.loads(zlib.decompress(case.body, 31))
    assert body["choices"][0]["message"]["content"] == sent["choices"][0]["message"]["content"]
    assert ("grounding" in body) == (mode != "pass")
    if mode == "pass":
        assert body == sent


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_s63_compressed_request_is_decoded(gateway: Gateway, mode: str, encoding: str) -> None:
    case = load("S63")
    gateway.upstream.script(reply_of(case))
    plain = json.dumps(body_of(gateway, case, mode)).encode()
    packed = gzip.compress(plain) if encoding == "gzip" else zlib.compress(plain)
    with gateway.call(packed, headers={"content-encoding": encoding}) as call:
        assert call.status == 200
        assert call.reading().text() == "Received."
    exchange = gateway.upstream.wait_exchange()
    assert exchange.json == case.request
    assert exchange.header("content-encoding") is None


def test_unknown_encoding_is_rejected_by_name(gateway: Gateway) -> None:
    gateway.upstream.script(Reply())
    with gateway.call(b"\x01\x02", headers={"content-encoding": "x-unknown"}) as call:
        assert call.status == 415
        assert "x-unknown" in call.json()["error"]["message"]
    assert gateway.upstream.exchanges == []


def test_body_not_matching_its_encoding_is_rejected(gateway: Gateway) -> None:
    gateway.upstream.script(Reply())
    with gateway.call(b"not gzip at all", headers={"content-encoding": "gzip"}) as call:
        assert call.status == 400
        assert "gzip" in call.json()["error"]["message"]
    assert gateway.upstream.exchanges == []


def test_compressed_body_does_not_grow_past_the_limit(start_gateway: StartGateway) -> None:
    gateway = start_gateway(max_body_bytes=100_000)
    gateway.upstream.script(Reply())
    packed = gzip.compress(json.dumps({"messages": ["x" * 5_000_000]}).encode())
    with gateway.call(packed, headers={"content-encoding": "gzip"}) as call:
        assert call.status == 413
    assert gateway.upstream.exchanges == []


# What is forwarded


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case_id", ["S65", "S66"])
def test_every_request_field_reaches_the_upstream_as_sent(gateway: Gateway, case_id: str, mode: str) -> None:
    """Values and types, without our own two fields."""
    case = load(case_id)
    with play(gateway, case, mode) as call:
        assert call.status == 200
        call.read_all()
    sent, got = (json.dumps(body, sort_keys=True) for body in (case.request, gateway.upstream.wait_exchange().json))
    assert got == sent


def test_request_bytes_are_unchanged_without_our_fields(gateway: Gateway) -> None:
    raw = b'{ "model":"m",\n "messages":[{"role":"user","content":"caf\\u00e9"}],"seed":1.0, "stream":true }'
    gateway.upstream.script(reply_of(load("S65")))
    with gateway.call(raw) as call:
        call.read_all()
    assert gateway.upstream.wait_exchange().body == raw


def test_s67_model_alias_is_resolved_and_both_names_are_stored(
    start_gateway: StartGateway, scripted: ScriptedUpstream, tmp_path: Path
) -> None:
    case = load("S67")
    ((asked, sent),) = case.driver["gateway"]["alias"].items()
    config = tmp_path / "groundlane.toml"
    config.write_text(
        f'[[upstreams]]\nname = "vendor"\nbase_url = "{scripted.base_url}"\nalias = {{ {asked} = "{sent}" }}\n', "utf-8"
    )
    gateway = start_gateway(config=str(config))
    for mode in MODES:
        scripted.script(reply_of(case))
        with gateway.call(body_of(gateway, case, mode)) as call:
            assert {chunk["model"] for chunk in call.reading().chunks} == {sent}
        assert scripted.wait_exchange().json == {**case.request, "model": sent}
        row = gateway.trace(call.request_id).request
        assert (row["model"], row["resolved_model"]) == (asked, sent)


@pytest.mark.parametrize("mode", MODES)
def test_s67_reply_has_the_model_of_the_upstream_in_every_chunk(gateway: Gateway, mode: str) -> None:
    with play(gateway, load("S67"), mode) as call:
        assert {chunk["model"] for chunk in call.reading().chunks} == {"vendor-model-2026-05"}


@pytest.mark.parametrize("mode", MODES)
def test_s71_keys_are_not_mixed_up(gateway: Gateway, mode: str, log: io.StringIO) -> None:
    """The caller's keys reach neither upstream nor log nor database, and the upstream's don't reach the caller."""
    case = load("S71")
    body = body_of(gateway, case, mode)
    echo = {"authorization": f"Bearer {UPSTREAM_KEY}", "x-api-key": UPSTREAM_KEY, "api-key": UPSTREAM_KEY}
    gateway.upstream.script(reply_of(case, headers={**case.headers, **echo}))
    headers = {name.lower(): value for name, value in case.driver["client"]["headers"].items()}
    with gateway.call(body, headers={**headers, "api-key": "CANARY-CLIENT-4"}) as call:
        call.read_all()
        answer = repr(call.headers) + repr(call.raw)
    exchange = gateway.upstream.wait_exchange()
    assert exchange.header("authorization") == f"Bearer {UPSTREAM_KEY}"
    assert "CANARY" not in repr(exchange.headers)
    assert UPSTREAM_KEY not in answer
    trace = gateway.trace(call.request_id)
    assert "CANARY" not in json.dumps(trace.body)
    stored = b"".join(path.read_bytes() for path in gateway.database.parent.iterdir() if path.is_file())
    for secret in ("CANARY-CLIENT", UPSTREAM_KEY, ADMIN_TOKEN):
        assert secret.encode() not in stored
    eventually(lambda: call.request_id in log.getvalue() or None, "log line")
    for secret in ("CANARY", UPSTREAM_KEY, ADMIN_TOKEN):
        assert secret not in log.getvalue()


@pytest.mark.parametrize("mode", MODES)
def test_s72_proxies_are_told_not_to_buffer_and_the_first_event_is_sent_at_once(gateway: Gateway, mode: str) -> None:
    case = load("S72")
    with play(gateway, case, mode, gated=True) as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(1)
        assert (call.header("content-type") or "").startswith("text/event-stream")
        assert "no-cache" in (call.header("cache-control") or "")
        assert call.header("x-accel-buffering") == "no"
        if mode != "final":
            assert b'"role"' in call.read_until(b"\n\n")
            exchange.wait_written(1)
            assert exchange.written == 1
        exchange.release(3)
        assert call.reading().text() == "Hi."


# Errors of the upstream


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("governed", [True, False])
def test_s59_unreachable_upstream(start_gateway: StartGateway, stream: bool, governed: bool) -> None:
    gateway = start_gateway(upstream_base_url=f"http://127.0.0.1:{closed_port()}/v1")
    body = {**load("S59").request, "stream": stream}
    if governed:
        body["documents"] = [ANY_DOCUMENT]
    with gateway.call(body) as call:
        assert call.status == 502
        assert (call.header("content-type") or "").startswith("application/json")
        assert set(call.json()["error"]) >= {"message", "type", "param", "code"}
    row = gateway.trace(call.request_id).request
    assert row["http_status"] == 502
    assert row["status"] in {"failed", "upstream_error"}


@pytest.mark.parametrize("mode", MODES)
def test_upstream_closing_before_an_answer_is_502(gateway: Gateway, mode: str) -> None:
    with play(gateway, load("S14"), mode, accept=False) as call:
        assert call.status == 502
        assert call.json()["error"]["message"]


def test_upstream_that_never_answers_is_504(start_gateway: StartGateway) -> None:
    gateway = start_gateway(read_timeout_s=0.2)
    with play(gateway, load("S14"), "pass", gated=True, hold_head=True) as call:
        assert call.status == 504
        assert call.json()["error"]["message"]
    gateway.upstream.wait_connections(0)


@pytest.mark.parametrize("mode", MODES)
def test_mid_stream_reset_is_an_error_event_and_an_incomplete_row(gateway: Gateway, mode: str) -> None:
    with play(gateway, load("S14"), mode, chunks=ONE_SENTENCE, end=End.RESET) as call:
        reading = call.reading()
    assert (len(reading.errors), reading.done, reading.ends_with_done) == (1, 1, True)
    assert gateway.trace(call.request_id).request["status"] == "incomplete"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_upstream_error_passes_with_its_known_fields(gateway: Gateway, status: int, mode: str) -> None:
    headers = {
        "content-type": "application/json",
        "retry-after": "7",
        "x-ratelimit-remaining-requests": "0",
        "x-request-id": "u1",
    }
    body = b'{"error": {"message": "No.",   "type": "some_error", "param": null, "code": "no"}}'
    known = json.loads(body)
    with play(gateway, load("S14"), mode, status=status, headers=headers, chunks=[body]) as call:
        assert (call.status, json.loads(call.read_all())) == (status, known)
        assert call.header("retry-after") == "7"
        assert call.header("x-ratelimit-remaining-requests") == "0"
    row = gateway.trace(call.request_id).request
    assert (row["status"], row["http_status"]) == ("upstream_error", status)


@pytest.mark.parametrize("mode", MODES)
def test_s58_unexpected_stream_is_merged(gateway: Gateway, mode: str) -> None:
    with play(gateway, load("S58"), mode) as call:
        assert call.status == 200
        assert (call.header("content-type") or "").startswith("application/json")
        body = call.json()
    assert body["object"] == "chat.completion"
    assert body["id"] == "chatcmpl-s58"
    assert len(body["choices"]) == 1
    choice = body["choices"][0]
    assert (choice["index"], choice["finish_reason"]) == (0, "stop")
    assert (choice["message"]["role"], choice["message"]["content"]) == ("assistant", "Zone A is free.")
    assert ("grounding" in body) == (mode != "pass")


# Clients that disconnect


@pytest.mark.parametrize("mode", MODES)
def test_s80_client_disconnect_ends_the_upstream_call(gateway: Gateway, mode: str) -> None:
    case = load("S80")
    with play(gateway, case, mode, pause_s=0.02) as call:
        exchange = gateway.upstream.wait_exchange()
        if mode == "final":
            exchange.wait_written(5)
            request_id = call.request_id
        else:
            while call.raw.count(b"\n\n") < 5:
                assert call.read_some()
            request_id = call.request_id
        call.abort()
    assert exchange.peer_closed.wait(1.0)
    assert exchange.written < 80
    row = gateway.trace(request_id).request
    assert row["status"] == "cancelled"
    assert row["completion_tokens"] is not None
    if mode != "final":
        assert (row["reply"] or "").startswith("Sentence number 1 is here.")
        assert row["completion_tokens"] > 0


@pytest.mark.parametrize("mode", MODES)
def test_s80_fifty_disconnects_leave_nothing_behind(gateway: Gateway, mode: str) -> None:
    case = load("S80")
    gateway.upstream.script(reply_of(case, pause_s=0.01, headers={**case.headers}))
    body = body_of(gateway, case, mode)
    gateway.upstream.wait_connections(50)
    before = gateway.tasks()

    def come_and_go(_: int) -> None:
        with gateway.call(body) as call:
            assert call.status == 200
            if mode != "final":
                call.read_some()
            call.abort()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(come_and_go, range(50)))
    for exchange in list(gateway.upstream.exchanges):
        assert exchange.ended.wait(2.0)
    eventually(lambda: gateway.tasks() <= before + 1 or None, f"no more than {before} tasks", 5.0)
    assert all(exchange.written < 100 for exchange in gateway.upstream.exchanges)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hold_head", [True, False], ids=["before-the-head", "before-the-first-token"])
def test_s81_disconnect_before_the_first_token_is_noticed(gateway: Gateway, mode: str, hold_head: bool) -> None:
    case = load("S81")
    body = body_of(gateway, case, mode)
    agent = f"s81-{mode}-{hold_head}"
    gateway.upstream.script(reply_of(case, gated=True, hold_head=hold_head))
    body = {**body, "user": agent}
    model = {"model": agent}
    with gateway.call({**body, **model}) as call:
        exchange = gateway.upstream.wait_exchange()
        call.abort()
    assert exchange.peer_closed.wait(2.0)
    assert exchange.written == 0
    (row,) = gateway.rows(1, model=agent)
    assert row["status"] == "cancelled"


# Slow upstreams and clients


@pytest.mark.parametrize("mode", MODES)
def test_s84_slow_upstream_is_not_cut_off_and_gets_heartbeats(start_gateway: StartGateway, mode: str) -> None:
    """Played twenty times as fast as in the case. At that speed, a pause of a busy machine is as long as a timeout,
    and the gateway rightly gives up. A failed case is therefore played again at a speed at which a pause would have to
    exceed two seconds."""
    try:
        _slow_but_alive(start_gateway, mode, second=1 / 20)
    except (AssertionError, openai.APIError):
        _slow_but_alive(start_gateway, mode, second=1 / 5)


def _slow_but_alive(start_gateway: StartGateway, mode: str, *, second: float) -> None:
    case = load("S84")
    gateway = start_gateway(read_timeout_s=15 * second, heartbeat_s=10 * second)
    chunks, delays = [], []
    for written in case.chunks:
        chunks += [b": ping\n\n"] * 3 + [written]
        delays += [5 * second] * 4
    started = time.monotonic()
    with play(gateway, case, mode, chunks=chunks, delays_s=delays) as call:
        silences = []
        last = time.monotonic()
        while call.read_some():
            silences.append(time.monotonic() - last)
            last = time.monotonic()
        reading = read_stream(call.raw)
    assert time.monotonic() - started > 90 * second
    is_whole(reading)
    assert reading.text() == "Slow but steady."
    assert max(silences) < 20 * second
    assert gateway.trace(call.request_id).request["status"] == "completed"


@pytest.mark.parametrize("mode", ["hold", "final"])
def test_held_stream_sends_heartbeats(start_gateway: StartGateway, mode: str) -> None:
    """Comment lines, which an SDK skips even if the upstream's events had ids."""
    gateway = start_gateway(heartbeat_s=0.05)
    case = load("S10")
    chunks = [case.chunks[2], case.chunks[4], *case.chunks[6:]]
    with play(gateway, case, mode, chunks=chunks, gated=True) as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(2)
        while call.raw.count(b"\n:") < 3:
            assert call.read_some()
        assert b"Meals" not in call.raw
        exchange.release(3)
        reading = call.reading()
    is_whole(reading)
    assert reading.text() == "Meals are included."


@pytest.mark.parametrize("mode", ["hold", "final"])
def test_slow_judge_sends_heartbeats(start_gateway: StartGateway, mode: str) -> None:
    gateway = start_gateway(heartbeat_s=0.05)
    gateway.judge.hold()
    with play(gateway, load("S14"), mode) as call:
        while call.raw.count(b"\n:") + call.raw.startswith(b":") < 2:
            assert call.read_some()
        assert b"gate" not in call.raw
        gateway.judge.release()
        assert call.reading().text() == "The gate closes at 18:40."


def test_live_text_does_not_wait_for_the_judge(gateway: Gateway) -> None:
    gateway.judge.hold()
    with play(gateway, load("S14"), "live") as call:
        call.read_until(b"The gate closes at 18:40.")
        gateway.judge.release()
        is_whole(call.reading())


def test_idle_upstream_is_cut_off_with_an_error(start_gateway: StartGateway) -> None:
    gateway = start_gateway(read_timeout_s=0.2)
    with play(gateway, load("S14"), "pass", chunks=ONE_SENTENCE, end=End.NEVER) as call:
        reading = call.reading()
    assert (len(reading.errors), reading.ends_with_done) == (1, True)
    assert gateway.trace(call.request_id).request["status"] == "incomplete"
    gateway.upstream.wait_connections(0)


FLOOD = 60
"""How often the text of the case is repeated: 20 MB, more than all socket buffers on the path can hold."""


def flood() -> list[bytes]:
    case = load("S85")
    return [case.chunks[0], *case.chunks[1:-2] * FLOOD, *case.chunks[-2:]]


def unjudged_flood() -> list[bytes]:
    """As much unjudged content, numbered: a test of buffers must not depend on the judge's speed."""
    audio = [chunk(0, {"audio": {"data": f"{number:06}" + "x" * 2000}}) for number in range(10_000)]
    return [chunk(0, {"role": "assistant", "content": "Listen."}), *audio, chunk(0, {}, "stop"), b"data: [DONE]\n\n"]


@pytest.mark.parametrize("mode", ["pass", "hold"])
def test_s85_slow_client_slows_its_upstream(gateway: Gateway, mode: str) -> None:
    """Unread data waits upstream, not in the gateway; the client receives all of it, in order."""
    case = load("S85")
    chunks = flood() if mode == "pass" else unjudged_flood()
    gateway.upstream.script(reply_of(case, chunks=chunks, pause_s=0))
    with gateway.call(body_of(gateway, case, mode), receive_buffer=SEND_BUFFER) as call:
        assert call.status == 200
        exchange = gateway.upstream.wait_exchange()
        stalled = wait_stalled(lambda: exchange.written)
        assert stalled < len(chunks) * 0.6
        raw = call.read_all()
    if mode == "pass":
        assert raw == b"".join(chunks)
    else:
        data = [delta["audio"]["data"][:6] for delta in read_stream(raw).deltas() if "audio" in delta]
        assert data == [f"{number:06}" for number in range(10_000)]


@pytest.mark.parametrize("mode", ["pass", "hold"])
def test_s85_client_that_reads_nothing_is_dropped(start_gateway: StartGateway, mode: str) -> None:
    case = load("S85")
    gateway = start_gateway(send_timeout_s=0.5)
    chunks = flood() if mode == "pass" else unjudged_flood()
    gateway.upstream.script(reply_of(case, chunks=chunks, pause_s=0))
    with gateway.call(body_of(gateway, case, mode), receive_buffer=SEND_BUFFER) as call:
        assert call.status == 200
        exchange = gateway.upstream.wait_exchange()
        assert exchange.peer_closed.wait(DEADLINE_S)
        assert gateway.trace(call.request_id).request["status"] == "cancelled"


def test_s85_slow_reading_loses_no_judged_text(gateway: Gateway) -> None:
    case = load("S85")
    gateway.upstream.script(reply_of(case, pause_s=0))
    with gateway.call(body_of(gateway, case, "hold"), receive_buffer=SEND_BUFFER) as call:
        while call.read_some(2000):
            pass
        reading = read_stream(call.raw)
    is_whole(reading)
    assert reading.text() == read_stream(case.body).text()


def wait_stalled(count: Callable[[], int]) -> int:
    """The count, once it has been stable for half a second."""
    last = (count(), time.monotonic())

    def look() -> int | None:
        nonlocal last
        now = count()
        if now != last[0]:
            last = (now, time.monotonic())
        return now if time.monotonic() - last[1] > 0.5 else None

    return eventually(look, "a stall", 60.0)


@pytest.mark.parametrize("mode", ["pass", "hold"])
def test_s98_text_without_a_sentence_end_is_held_within_bounds(gateway: Gateway, mode: str) -> None:
    case = load("S98")
    with play(gateway, case, mode, gated=True) as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(40)  # 10,000 characters, a third of the whole
        call.read_until(b"word word word")
        assert exchange.written <= 40
        exchange.release(len(case.chunks))
        assert call.reading().text() == TEXTS["S98"]


def test_s02_byte_by_byte_costs_little(gateway: Gateway) -> None:
    case = load("S02")
    started = time.monotonic()
    with play(gateway, case, "hold", pause_s=0) as call:
        assert call.reading().text() == TEXTS["S02"]
    assert time.monotonic() - started < 2.0


# The database


@pytest.mark.parametrize("mode", ["pass", "hold"])
def test_s87_locked_database_delays_rows_not_replies(start_gateway: StartGateway, mode: str) -> None:
    case = load("S87")
    gateway = start_gateway()
    gateway.upstream.script(reply_of(case))
    body = body_of(gateway, case, mode)

    def ask(_: int) -> tuple[str, float, str]:
        started = time.monotonic()
        with gateway.call(body) as call:
            text = call.reading().text()
            return text, time.monotonic() - started, call.request_id

    lock = sqlite3.connect(gateway.database, isolation_level=None)
    try:
        lock.execute("BEGIN EXCLUSIVE")
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(ask, range(50)))
        lock.execute("COMMIT")
    finally:
        lock.close()
    assert {text for text, _, _ in answers} == {"Stored later."}
    assert max(seconds for _, seconds, _ in answers) < 3.0
    rows = gateway.rows(50)
    assert sorted(row["request_id"] for row in rows) == sorted(request_id for _, _, request_id in answers)
    assert {row["status"] for row in rows} == {"completed"}


# Concurrent streams


def test_s86_checking_does_not_block_the_loop(start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the real judge is in the middle of an inference for twenty streams, the health endpoint answers."""
    case = load("S86")
    gateway = start_gateway(real_judge=True, judge_threads=1, judge_timeout_ms=60_000)
    gateway.upstream.script(reply_of(case))
    body = {**body_of(gateway, case, "hold"), "documents": [{"id": "d1", "text": "The contract ends on 31 May 2027."}]}
    inferring, resumed = threading.Event(), threading.Event()
    run = InferenceSession.run

    def stopped(session: InferenceSession, *arguments: Any) -> Any:
        inferring.set()
        assert resumed.wait(DEADLINE_S)
        return run(session, *arguments)

    def ask(_: int) -> str:
        with gateway.call(body) as call:
            return call.reading().text()

    monkeypatch.setattr(InferenceSession, "run", stopped)
    with ThreadPoolExecutor(20) as pool:
        texts = pool.map(ask, range(20))
        try:
            assert inferring.wait(DEADLINE_S)
            for _ in range(10):
                with gateway.call(path="/healthz", method="GET") as call:
                    assert call.status == 200
                    call.read_all()
        finally:
            resumed.set()
        assert set(texts) == {TEXTS["S86"]}


def test_two_interleaved_streams_do_not_mix(gateway: Gateway) -> None:
    case = load("S01")
    gateway.upstream.script(reply_of(load("S14"), gated=True), reply_of(case, gated=True))
    body = body_of(gateway, case, "hold", OBSERVE)
    with gateway.call(body) as first:
        one = gateway.upstream.wait_exchange(0)
        with gateway.call(body) as second:
            other = gateway.upstream.wait_exchange(1)
            for _ in range(3):
                one.release()
                other.release()
            assert second.reading().text() == TEXTS["S01"]
        assert first.reading().text() == TEXTS["S14"]


def test_stream_read_by_the_sdk_equals_the_grammar(gateway: Gateway) -> None:
    with play(gateway, load("S02"), "hold", pause_s=0) as call:
        reading = call.reading()
    joined = "".join(chunk.choices[0].delta.content or "" for chunk in read_with_sdk(reading.raw) if chunk.choices)
    assert joined == reading.text()
