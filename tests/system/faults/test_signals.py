"""SIGTERM under load: answered requests are in the log, complete and once; requests in progress are delivered or
reported as cut off.

``kill -9`` under load is in ``tests/system/e2e/operations/test_kill.py``."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest

from app.cli.demo.content import ScriptedAnswer
from app.cli.demo.servers import bind, serving
from app.cli.demo.upstream import ScriptedUpstream
from tests.support.gateways.server_process import gateway
from tests.system.faults.support.scripts import DOCUMENTS, TEXT

pytestmark = pytest.mark.slow

QUESTION = "How long is the warranty?"
CLIENTS, ENOUGH = 4, 30


def test_sigterm_under_load(tmp_path: Path) -> None:
    """Events are written later (``batched``), and none is lost because of that."""
    upstream = ScriptedUpstream([ScriptedAnswer(question=QUESTION, answer=TEXT)])
    told: list[str] = []
    stop, enough = Event(), Event()
    with serving(upstream.app, bind(0)) as url, gateway(tmp_path, url, judge="none") as process:
        clients = [Thread(target=_ask, args=(process.url, number, told, stop, enough)) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            assert enough.wait(60), f"only {len(told)} answers"
            code = process.stop()
        finally:
            stop.set()
            for client in clients:
                client.join(60)
    assert code in (0, -15)
    with closing(sqlite3.connect(tmp_path / "groundlane.db")) as database:
        rows = [row[0] for row in database.execute("SELECT request_id FROM requests")]
    assert len(rows) == len(set(rows))
    assert set(told) - set(rows) == set()
    assert list(tmp_path.glob("*.jsonl")) == [], "nothing is left to be replayed"


def _ask(url: str, number: int, told: list[str], stop: Event, enough: Event) -> None:
    """Send requests until the gateway is gone, recording each whose reply was complete."""
    body = {
        "model": "scripted-1",
        "messages": [{"role": "user", "content": QUESTION}],
        "documents": DOCUMENTS,
        "stream": number % 2 == 0,
    }
    with httpx.Client(timeout=60) as client:
        while not stop.is_set():
            try:
                answer = client.post(f"{url}/v1/chat/completions", json=body)
            except httpx.TransportError:
                return  # refused or cut off: the client saw no complete reply
            if answer.status_code == 200 and _is_whole(answer.text, stream=bool(body["stream"])):
                told.append(answer.headers["x-groundlane-request-id"])
            if len(told) >= ENOUGH:
                enough.set()


def _is_whole(text: str, *, stream: bool) -> bool:
    return text.endswith("data: [DONE]\n\n") if stream else bool(json.loads(text)["choices"])
