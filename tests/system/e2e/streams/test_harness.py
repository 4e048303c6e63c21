"""The harness itself: if the upstream, the client or the parser were wrong, all other tests here would be."""

from http.client import HTTPException
from pathlib import Path

import pytest

from tests.support.apis.reply_reader import read_stream, read_with_sdk
from tests.support.apis.stream_cases import case_ids, expand, load
from tests.support.gateways.http_client import Call
from tests.support.gateways.mock_upstream import End, Reply, ScriptedUpstream, closed_port, json_reply


def call(upstream: ScriptedUpstream, body: bytes = b"{}") -> Call:
    return Call(upstream.port, "POST", "/v1/chat/completions", body, {"content-type": "application/json"})


def test_upstream_records_the_request(scripted: ScriptedUpstream) -> None:
    scripted.script(json_reply({"ok": True}))
    with call(scripted, b'{"a": 1}') as one:
        assert (one.status, one.json()) == (200, {"ok": True})
    exchange = scripted.wait_exchange()
    assert (exchange.method, exchange.path, exchange.json) == ("POST", "/v1/chat/completions", {"a": 1})
    assert exchange.header("Content-Type") == "application/json"


def test_chunks_arrive_as_separate_reads(scripted: ScriptedUpstream) -> None:
    scripted.script(Reply(chunks=[b"data: a\n", b"\ndata: b\n\n"]))
    with call(scripted) as one:
        assert [one.read_some(), one.read_some(), one.read_some()] == [b"data: a\n", b"\ndata: b\n\n", b""]


def test_gated_chunk_waits_for_its_release(scripted: ScriptedUpstream) -> None:
    scripted.script(Reply(chunks=[b"1", b"2"], gated=True))
    with call(scripted) as one:
        exchange = scripted.wait_exchange()
        exchange.release()
        assert one.read_some() == b"1"
        exchange.wait_written(1)
        assert exchange.written == 1
        exchange.release()
        assert one.read_all() == b"12"


def test_upstream_sees_the_client_disconnect(scripted: ScriptedUpstream) -> None:
    scripted.script(Reply(chunks=[b"1"], end=End.NEVER))
    with call(scripted) as one:
        one.read_until(b"1")
        exchange = scripted.wait_exchange()
        assert not exchange.peer_closed.is_set()
        one.abort()
    assert exchange.peer_closed.wait(5)
    scripted.wait_connections(0)


def test_reset_interrupts_the_body(scripted: ScriptedUpstream) -> None:
    scripted.script(Reply(chunks=[b"1"], end=End.RESET))
    with call(scripted) as one, pytest.raises((OSError, HTTPException)):
        one.read_all()
    with call(scripted) as other:
        other.read_until(b"1")


def test_body_can_end_with_the_connection(scripted: ScriptedUpstream) -> None:
    scripted.script(Reply(chunks=[b"1", b"2"], chunked=False))
    with call(scripted) as one:
        assert one.read_all() == b"12"
        assert one.header("transfer-encoding") is None


def test_closed_port_refuses_connections() -> None:
    with pytest.raises(ConnectionRefusedError):
        Call(closed_port(), "GET", "/", None, {})


def test_reader_distinguishes_frame_formats() -> None:
    raw = b': ping\n\ndata: {"choices": []}\n\nretry: 1\n\ndata:\n\nevent: x\ndata: [DONE]\n\ndata: "cut'
    reading = read_stream(raw)
    assert [frame.data for frame in reading.frames] == [None, b'{"choices": []}', None, b"", b"[DONE]", b'"cut']
    assert (reading.empty_frames, reading.done, reading.terminated) == (2, 1, False)
    assert reading.frames[4].event == "x"


def test_reader_joins_text_by_choice() -> None:
    raw = b"".join(
        b'data: {"choices": [{"index": %d, "delta": {"content": "%s"}, "finish_reason": %s}]}\n\n' % piece
        for piece in [(0, b"a", b"null"), (1, b"x", b'""'), (0, b"b", b'"stop"')]
    )
    reading = read_stream(raw + b"data: [DONE]\n\n")
    assert (reading.text(0), reading.text(1)) == ("ab", "x")
    assert (reading.finishes(0), reading.finishes(1)) == (["stop"], [])
    assert (reading.where("a"), reading.where("ab")) == (0, 2)
    assert [chunk.choices[0].delta.content for chunk in read_with_sdk(reading.raw)] == ["a", "x", "b"]


def test_all_cases_are_present() -> None:
    assert len(case_ids()) == 52
    for case_id in case_ids():
        case = load(case_id)
        assert case.id == case_id
        assert bool(case.chunks) == bool(case.status), case_id


def test_every_case_is_checked() -> None:
    """Each is named in a module of stream tests, by its id in a table or in the name of its test."""
    modules = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_stream_*.py"))
    missing = [
        case_id for case_id in case_ids() if f'"{case_id}"' not in modules and f"_{case_id.lower()}_" not in modules
    ]
    assert missing == []


def test_chunk_entries_expand() -> None:
    assert list(expand(["ä", {"b64": "5A=="}])) == ["ä".encode(), b"\xe4"]
    assert list(expand([{"times": 2, "of": ["s{n}"]}])) == [b"s1", b"s2"]
    assert list(expand([{"cut": 2, "of": ["abc", "de"]}])) == [b"ab", b"cd", b"e"]
    with pytest.raises(ValueError, match="no such chunk entry"):
        list(expand([{"what": 1}]))
