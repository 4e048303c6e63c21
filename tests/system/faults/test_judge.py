"""The judge crashes, hangs or runs out of memory: replies continue, unjudged claims are marked, and no one waits."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from judges.cross_encoder.cached_evidence import CachedEvidenceScorer
from judges.cross_encoder.remote.groundlane_protocol import PROTOCOL
from tests.support.apis.reply_reader import Reading
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway, eventually
from tests.system.faults.support.scripts import DOCUMENTS, TEXT, head
from tests.system.faults.support.wire import Act, RawUpstream

Start = Callable[..., Gateway]
CRASHES = [RuntimeError("boom"), MemoryError(), OSError("no such device"), ValueError("bad shape")]


def ask(gateway: Gateway, agent: str | None = None) -> Reading:
    gateway.upstream.script(answer(TEXT, stream=True))
    asked = {"model": "m", "messages": [{"role": "user", "content": "How long is the warranty?"}]}
    body = {**asked, "documents": DOCUMENTS, "stream": True}
    with gateway.call({**body, "grounding": {"agent": agent}} if agent else body) as call:
        return call.reading()


def reasons(reading: Reading) -> set[str | None]:
    return {claim["reason"] for claim in reading.grounding["claims"]}


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: type(crash).__name__)
def test_crashing_judge(gateway: Gateway, log: io.StringIO, crash: Exception) -> None:
    """The text is delivered, marked unverifiable with the reason; the next request is judged again."""
    gateway.judge.error = crash
    try:
        reading = ask(gateway)
    finally:
        gateway.judge.error = None
    assert (reading.text(), reading.grounding["verdict"]) == (TEXT, "has_unverifiable")
    assert reasons(reading) == {"judge_error"}
    assert type(crash).__name__ in log.getvalue()
    assert ask(gateway).grounding["verdict"] == "supported"


def test_crashing_judge_under_a_blocking_policy(gateway: Gateway) -> None:
    """Claims that a policy requires to be supported aren't delivered because no judge could judge them."""
    agent = gateway.agent(
        grounding={"max_unverifiable_ratio": 0.0, "action_on_violation": "block", "stream_mode": "final"}
    )
    gateway.judge.error = MemoryError()
    try:
        reading = ask(gateway, agent)
    finally:
        gateway.judge.error = None
    assert reading.grounding["action"] == "block"
    assert TEXT not in reading.text()


def test_hanging_judge(start_gateway: Start) -> None:
    """A sentence waits for it no longer than its deadline, and neither does shutdown."""
    gateway = start_gateway(judge_timeout_ms=200)
    gateway.judge.hold()
    try:
        reading = ask(gateway)
        assert (reading.text(), reading.grounding["verdict"]) == (TEXT, "has_unverifiable")
        assert reasons(reading) == {"timeout"}
    finally:
        gateway.judge.release()
    assert ask(gateway).grounding["verdict"] == "supported"


@pytest.mark.slow
def test_stuck_thread_of_the_embedded_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: io.StringIO) -> None:
    """Its sentences time out; at shutdown the thread is abandoned, and all events are written."""
    go_on, judged = Event(), CachedEvidenceScorer._score_queries

    def stuck(self: CachedEvidenceScorer, *arguments: object) -> object:
        go_on.wait(120)
        return judged(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(CachedEvidenceScorer, "_score_queries", stuck)
    monkeypatch.setattr("judges.cross_encoder.threaded_scorer._CLOSE_S", 0.2)
    gateway = Gateway(tmp_path, real_judge=True, judge_timeout_ms=200, judge_threads=1).start()
    try:
        assert reasons(ask(gateway)) == {"timeout"}
        gateway.close()
    finally:
        go_on.set()
    assert "judge threads are stuck and were abandoned" in log.getvalue()
    later = Gateway(tmp_path, judge="none").start()
    try:
        assert [row["verdict"] for row in later.rows(1)] == ["has_unverifiable"]
    finally:
        later.close()


def test_embedded_judge_out_of_memory(start_gateway: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError

    gateway = start_gateway(real_judge=True, judge_threads=1)
    with monkeypatch.context() as patched:
        patched.setattr(CachedEvidenceScorer, "_score_queries", exhausted)
        assert reasons(ask(gateway)) == {"judge_error"}
    assert ask(gateway).grounding["verdict"] == "supported"


@pytest.mark.parametrize("end", [Act.RESET, Act.STALL], ids=["breaks-off", "silent"])
def test_failing_remote_judge(start_gateway: Start, end: Act) -> None:
    """It identifies itself, and then disconnects, or is silent for as long as a sentence may take."""
    told = {"protocol": PROTOCOL, "model": "m", "max_tokens": 512, "max_batch": 8, "languages": None, "fuses": False}
    info = json.dumps({**told, "tokenizer": None}).encode()
    judge = RawUpstream()
    try:
        judge.play(head(stream=False, length=len(info)) + info, Act.ASK, end)
        gateway = start_gateway(
            real_judge=True, judge=f"http:http://127.0.0.1:{judge.port}/judge", judge_timeout_ms=400
        )
        reading = ask(gateway)
        assert reading.text() == TEXT
        found = reasons(reading)
        assert found == {"judge_error"} if end is Act.RESET else found <= {"judge_error", "timeout"}
        assert reading.grounding["verdict"] == "has_unverifiable"
    finally:
        judge.close()


def test_unloadable_judge(start_gateway: Start, tmp_path: Path) -> None:
    """The gateway starts and serves; health reports the fault."""
    gateway = start_gateway(real_judge=True, judge=f"onnx:{tmp_path / 'nothing'}")
    assert ask(gateway).grounding["verdict"] == "not_checked"
    with gateway.call(method="GET", path="/readyz") as call:
        told = call.json()
    assert (call.status, told["status"], told["checks"]["judge"]["ok"]) == (200, "degraded", False)


def test_unresponsive_judge_shows_in_health(start_gateway: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.api.health._JUDGE_LIMIT_S", 0.05)
    gateway = start_gateway(judge_timeout_ms=100)
    gateway.judge.hold()
    try:
        ask(gateway)

        def degraded() -> bool | None:
            with gateway.call(method="GET", path="/readyz") as call:
                return "has not answered for" in call.json()["checks"]["judge"]["detail"] or None

        eventually(degraded, "a judge that is said to be silent")
    finally:
        gateway.judge.release()
