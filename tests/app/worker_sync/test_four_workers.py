"""Several workers act as one gateway: a policy changed on one is in force on all, and limits are shared."""

import os
import time
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from app.cli.demo.content import ScriptedAnswer
from app.cli.demo.servers import bind, serving
from app.cli.demo.upstream import ScriptedUpstream
from tests.support.gateways.server_process import LIMIT_S, gateway

pytestmark = pytest.mark.slow

WORKERS = 4
TOKEN = "token-for-this-test-alone"
QUESTION = "How long is the warranty?"
BODY = {
    "model": "scripted-1",
    "messages": [{"role": "user", "content": QUESTION}],
    "documents": [{"text": "The warranty covers 24 months.", "age_days": 400}],
}


def test_change_reaches_four_workers(tmp_path: Path) -> None:
    """Polled rather than awaited: the status first, then the absence of answers from the old version."""
    upstream = ScriptedUpstream([ScriptedAnswer(question=QUESTION, answer="The warranty covers 24 months.")])
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


def test_workers_sharing_a_redis_count_a_key_together(tmp_path: Path) -> None:
    redis_url = os.environ.get("GROUNDLANE_TEST_REDIS_URL")
    if redis_url is None:
        pytest.skip("set GROUNDLANE_TEST_REDIS_URL (redis://…) to run this with Redis")
    upstream = ScriptedUpstream([ScriptedAnswer(question=QUESTION, answer="The warranty covers 24 months.")])
    shared = {"judge": "none", "admin_token": TOKEN, "redis_url": redis_url}
    with (
        serving(upstream.app, bind(0)) as url,
        gateway(tmp_path, url, "--workers", "2", **shared) as process,
        httpx.Client(headers={"authorization": f"Bearer {TOKEN}"}, timeout=LIMIT_S) as admin,
    ):
        checks = admin.get(f"{process.url}/readyz").json()["checks"]
        assert checks["rate_limits"] == {"ok": True, "detail": "shared"}
        began = time.monotonic()
        made = admin.post(f"{process.url}/admin/v1/keys", json={"name": "bot", "requests_per_minute": 3}).json()
        answers = _counted(process.url, made["key"], 16)
        passed = time.monotonic() - began
    assert answers.count(200) + answers.count(429) == 16
    assert 3 <= answers.count(200) <= 3 + passed / 20  # the bucket gains one every 20 seconds


def _counted(url: str, key: str, count: int) -> list[int]:
    """The answers to calls with the key, without those from a worker that didn't have the key yet."""
    deadline, answers = time.monotonic() + LIMIT_S, list[int]()
    while len(answers) < count:
        if (status := _ask(url, key)) != 401:
            answers.append(status)
        assert time.monotonic() < deadline
    return answers


def _in_force(admin: httpx.Client, policy_id: str, version: int) -> dict[str, Any]:
    deadline, tick = time.monotonic() + LIMIT_S, Event()
    while True:
        status: dict[str, Any] = admin.get(f"/policies/{policy_id}/status").json()
        if status["in_force"] and status["version"] == version and len(status["workers"]) == WORKERS:
            return status
        assert time.monotonic() < deadline, status
        tick.wait(0.02)


def _ask(url: str, key: str | None = None) -> int:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.post(f"{url}/v1/chat/completions", json=BODY, headers=headers, timeout=LIMIT_S).status_code
