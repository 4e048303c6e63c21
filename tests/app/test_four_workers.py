"""A policy changed on one of several workers is in force on all of them, as its status says."""

import time
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from app.demo.content import Answer
from app.demo.servers import bind, serving
from app.demo.upstream import ScriptedUpstream
from tests.app.process import LIMIT_S, gateway

pytestmark = pytest.mark.slow

WORKERS = 4
TOKEN = "token-for-this-test-alone"
QUESTION = "How long is the warranty?"
BODY = {
    "model": "scripted-1",
    "messages": [{"role": "user", "content": QUESTION}],
    "documents": [{"text": "The warranty covers 24 months.", "age_days": 400}],
}


def test_a_change_is_in_force_on_four_workers(tmp_path: Path) -> None:
    """Asked again and again, not waited for: the status first, then that no worker answers by the old version."""
    upstream = ScriptedUpstream([Answer(question=QUESTION, answer="The warranty covers 24 months.")])
    with (
        serving(upstream.app, bind(0)) as url,
        gateway(tmp_path, url, "--workers", str(WORKERS), judge="none", admin_token=TOKEN) as process,
        httpx.Client(
            base_url=f"{process.url}/admin/v1",
            headers={"authorization": f"Bearer {TOKEN}"},
            timeout=LIMIT_S,
        ) as admin,
    ):
        policy = admin.post("/policies", json={"name": "gate", "category": "retrieval"}).json()
        status = _in_force(admin, policy["id"], 1)
        assert len({worker["pid"] for worker in status["workers"]}) == WORKERS
        # A connection each, so that every worker gets some.
        assert {_ask(process.url) for _ in range(12)} == {400}
        changed = admin.patch(f"/policies/{policy['id']}", json={"rules": {"action_on_stale_source": "warn"}}).json()
        status = _in_force(admin, policy["id"], changed["version"])
        assert {worker["version"] for worker in status["workers"]} == {2}
        assert {_ask(process.url) for _ in range(12)} == {200}


def _in_force(admin: httpx.Client, policy_id: str, version: int) -> dict[str, Any]:
    deadline, tick = time.monotonic() + LIMIT_S, Event()
    while True:
        status: dict[str, Any] = admin.get(f"/policies/{policy_id}/status").json()
        if status["in_force"] and status["version"] == version and len(status["workers"]) == WORKERS:
            return status
        assert time.monotonic() < deadline, status
        tick.wait(0.02)


def _ask(url: str) -> int:
    return httpx.post(f"{url}/v1/chat/completions", json=BODY, timeout=LIMIT_S).status_code
