"""The gateway as a process: one token, shared metrics of workers, and streams that finish on shutdown."""

import asyncio
import gc
import re
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.cli.demo.content import ScriptedAnswer
from app.cli.demo.servers import bind, serving
from app.cli.demo.upstream import ScriptedUpstream
from app.cli.serve import to_serve
from tests.support.gateways.server_process import LIMIT_S, Process, gateway

pytestmark = pytest.mark.slow

QUESTION = "How long is the warranty?"
ANSWERS = [ScriptedAnswer(question=QUESTION, answer="The warranty covers 24 months from the date of purchase.")]
BODY = {
    "model": "scripted-1",
    "messages": [{"role": "user", "content": QUESTION}],
    "documents": [{"text": "The warranty covers 24 months from the date of purchase."}],
}


def tokens(process: Process) -> list[str]:
    return [line.rsplit(" ", 1)[-1].strip() for line in process.lines if line.startswith("Admin token")]


def test_admin_token_is_created_once_and_opens_the_admin_api(tmp_path: Path) -> None:
    with serving(ScriptedUpstream(ANSWERS).app, bind(0)) as upstream:
        with gateway(tmp_path, upstream, judge="none") as first:
            (token,) = tokens(first)
            answer = httpx.get(f"{first.url}/admin/v1/policies", headers={"authorization": f"Bearer {token}"})
            assert answer.status_code == 200
            assert first.stop() in (0, -signal.SIGTERM)
        with gateway(tmp_path, upstream, judge="none") as second:
            assert tokens(second) == []
            answer = httpx.get(f"{second.url}/admin/v1/policies", headers={"authorization": f"Bearer {token}"})
            assert answer.status_code == 200


def test_workers_share_metrics_and_leave_no_files(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with (
        serving(ScriptedUpstream(ANSWERS).app, bind(0)) as upstream,
        gateway(tmp_path, upstream, "--workers", "2", scratch=scratch, judge="none") as process,
    ):
        for _ in range(20):
            # A connection each, so that both workers get some.
            assert httpx.post(f"{process.url}/v1/chat/completions", json=BODY, timeout=LIMIT_S).status_code == 200
        text = httpx.get(f"{process.url}/metrics").text
        assert len(tokens(process)) == 1
        assert process.stop() == 0
    counted = re.findall(r"^groundlane_requests_total\{.*\} (\S+)$", text, re.MULTILINE)
    assert sum(map(float, counted)) == 20
    assert list(scratch.glob("groundlane-*")) == []


def test_open_stream_ends_normally_after_sigterm(tmp_path: Path) -> None:
    """The signal arrives during the first words of the reply, which is still delivered completely, and logged."""
    upstream = ScriptedUpstream(ANSWERS, delay_s=0.1)
    with serving(upstream.app, bind(0)) as url, gateway(tmp_path, url) as process:
        request = {**BODY, "stream": True, "grounding": {"inject": "system"}}
        with httpx.stream("POST", f"{process.url}/v1/chat/completions", json=request, timeout=LIMIT_S) as response:
            lines = response.iter_lines()
            first = next(lines)
            process.child.send_signal(signal.SIGTERM)
            rest = list(lines)
        process.wait()
    assert first.startswith("data: ")
    assert "data: [DONE]" in rest
    assert any("24 months" in line for line in rest)
    (logged,) = [line for line in process.lines if '"event":"request"' in line]
    assert '"status":"completed"' in logged


def test_port_in_use_stops_the_start_before_anything_is_created(tmp_path: Path) -> None:
    taken = bind(0)
    taken.listen()
    with taken, serving(ScriptedUpstream(ANSWERS).app, bind(0)) as upstream:
        port = taken.getsockname()[1]
        process = Process(tmp_path, upstream, "--port", str(port), judge="none")
        assert process.wait() == 1
    wanted = f"Error: 127.0.0.1, port {port}: Address already in use. Choose another address with --host or --port.\n"
    assert process.lines == [wanted]  # no token is printed
    assert not list(tmp_path.glob("*.db"))


def test_garbage_collector_ignores_what_exists_when_a_worker_opens() -> None:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        yield {"opened": True}

    async def state() -> Mapping[str, Any] | None:
        app = to_serve(FastAPI(lifespan=lifespan))
        async with app.router.lifespan_context(app) as found:
            return found

    before = gc.get_threshold()
    try:
        assert asyncio.run(state()) == {"opened": True}
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
