"""kill -9 under load: with ``sync`` durability, no decision that a client has received is missing afterwards."""

import os
import signal
import sqlite3
from functools import partial
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest

from app.cli.demo.content import ScriptedAnswer
from app.cli.demo.servers import bind, serving
from app.cli.demo.upstream import ScriptedUpstream
from tests.support.gateways.server_process import gateway

pytestmark = pytest.mark.slow

TOKEN = "admin-token-for-tests-only"
QUESTION = "How long is the warranty?"
FALSE = "The warranty covers 48 months from the date of purchase."
CLIENTS = 6
ENOUGH = 40


def test_no_acknowledged_block_is_missing_after_kill_9(tmp_path: Path) -> None:
    """Clients keep sending requests that are refused before the call or blocked in the reply, streamed and not."""
    upstream = ScriptedUpstream([ScriptedAnswer(question=QUESTION, answer=FALSE)])
    told: list[str] = []
    stop, enough = Event(), Event()
    serve = partial(gateway, tmp_path, event_durability="sync", admin_token=TOKEN, judge_threads="1")
    with serving(upstream.app, bind(0)) as url, serve(url) as process:
        _make_policies(process.url)
        clients = [Thread(target=_ask, args=(process.url, number, told, stop, enough)) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        assert enough.wait(60), f"only {len(told)} answers"
        os.kill(process.child.pid, signal.SIGKILL)
        stop.set()
        for client in clients:
            client.join(60)
        process.wait()
        # A start replays the journal, if there is one.
        with serve(url) as again:
            again.stop()
    with sqlite3.connect(tmp_path / "groundlane.db") as database:
        blocked = {row[0] for row in database.execute("SELECT request_id FROM decisions WHERE action = 'block'")}
        whole = {row[0] for row in database.execute("SELECT request_id FROM requests WHERE status = 'blocked'")}
    assert len(told) >= ENOUGH
    assert set(told) - blocked == set()
    assert set(told) - whole == set()


def _make_policies(url: str) -> None:
    for category, rules in (("retrieval", {}), ("grounding", {"contradiction_action": "block"})):
        answer = httpx.post(
            f"{url}/admin/v1/policies",
            json={"name": category, "category": category, "rules": rules},
            headers={"authorization": f"Bearer {TOKEN}"},
        )
        assert answer.status_code == 201, answer.text


def _ask(url: str, number: int, told: list[str], stop: Event, enough: Event) -> None:
    """Send requests until the gateway is gone; record each request whose block arrived completely."""
    stale, streamed = number % 3 == 0, number % 2 == 0
    document = {"text": "The warranty covers 24 months from the date of purchase.", "relevance_score": 0.9}
    body = {
        "model": "scripted-1",
        "messages": [{"role": "user", "content": QUESTION}],
        "documents": [{**document, "age_days": 400 if stale else 1}],
        "stream": streamed,
    }
    with httpx.Client(timeout=60) as client:
        while not stop.is_set():
            try:
                answer = client.post(f"{url}/v1/chat/completions", json=body)
            except httpx.TransportError:
                return  # the client has no decision: it may be missing
            assert (answer.status_code == 400) if stale else ("content_filter" in answer.text), answer.text
            told.append(answer.headers["x-groundlane-request-id"])
            if len(told) >= ENOUGH:
                enough.set()
