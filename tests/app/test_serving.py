"""The gateway as a process: one token, workers that count together, and streams that end by themselves."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest

from app.demo.content import Answer
from app.demo.servers import bind, serving
from app.demo.upstream import ScriptedUpstream

pytestmark = pytest.mark.slow

_LIMIT_S = 60.0
_RUNNING = re.compile(r"Uvicorn running on (http://127\.0\.0\.1:\d+)")
QUESTION = "How long is the warranty?"
ANSWERS = [Answer(question=QUESTION, answer="The warranty covers 24 months from the date of purchase.")]
BODY = {
    "model": "scripted-1",
    "messages": [{"role": "user", "content": QUESTION}],
    "documents": [{"text": "The warranty covers 24 months from the date of purchase."}],
}


class Process:
    """``groundlane serve`` as a child, with what it wrote to stderr."""

    def __init__(
        self, folder: Path, upstream: str, *arguments: str, scratch: Path | None = None, **settings: str
    ) -> None:
        environment: Mapping[str, str] = {
            "PATH": os.environ.get("PATH", ""),
            "TMPDIR": str(scratch or folder),
            "GROUNDLANE_UPSTREAM_BASE_URL": f"{upstream}/v1",
            "GROUNDLANE_JUDGE_THREADS": "1",
            **{f"GROUNDLANE_{name.upper()}": value for name, value in settings.items()},
        }
        command = [sys.executable, "-c", "from app.cli import main; main()", "serve", "--port", "0", *arguments]
        self.child = subprocess.Popen(
            command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.lines: list[str] = []
        self.url = ""
        self._up = Event()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stderr is not None
        with self.child.stderr as stream:
            for line in stream:
                self.lines.append(line)
                if found := _RUNNING.search(line):
                    self.url = found.group(1)
                    self._up.set()
        self._up.set()

    def wait_until_up(self) -> None:
        assert self._up.wait(_LIMIT_S), "not up in time"
        assert self.url, "".join(self.lines)
        # With several workers the port is known before any of them listens.
        deadline, tick = time.monotonic() + _LIMIT_S, Event()
        while not self._answers():
            assert time.monotonic() < deadline, "no answer in time"
            tick.wait(0.05)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz", timeout=_LIMIT_S).status_code == 200
        except httpx.ConnectError:
            return False

    def stop(self) -> int:
        self.child.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it with its workers, however it is."""
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        code = self.child.wait(_LIMIT_S)
        self._reader.join(_LIMIT_S)
        return code


@contextmanager
def gateway(
    folder: Path, upstream: str, *arguments: str, scratch: Path | None = None, **settings: str
) -> Iterator[Process]:
    process = Process(folder, upstream, *arguments, scratch=scratch, **settings)
    try:
        process.wait_until_up()
        yield process
    finally:
        process.kill()


def tokens(process: Process) -> list[str]:
    return [line.rsplit(" ", 1)[-1].strip() for line in process.lines if line.startswith("Admin token")]


def test_the_token_is_made_once_and_opens_the_admin_api(tmp_path: Path) -> None:
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


def test_workers_count_together_and_leave_nothing_behind(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with (
        serving(ScriptedUpstream(ANSWERS).app, bind(0)) as upstream,
        gateway(tmp_path, upstream, "--workers", "2", scratch=scratch, judge="none") as process,
    ):
        for _ in range(20):
            # A connection each, so that both workers get some.
            assert httpx.post(f"{process.url}/v1/chat/completions", json=BODY, timeout=_LIMIT_S).status_code == 200
        text = httpx.get(f"{process.url}/metrics").text
        assert len(tokens(process)) == 1
        assert process.stop() == 0
    counted = re.findall(r"^groundlane_requests_total\{.*\} (\S+)$", text, re.MULTILINE)
    assert sum(map(float, counted)) == 20
    assert list(scratch.glob("groundlane-*")) == []


def test_an_open_stream_ends_by_itself_after_sigterm(tmp_path: Path) -> None:
    """The reply is in its first words when the signal comes; it is delivered whole, and logged."""
    upstream = ScriptedUpstream(ANSWERS, delay_s=0.1)
    with serving(upstream.app, bind(0)) as url, gateway(tmp_path, url) as process:
        request = {**BODY, "stream": True, "grounding": {"inject": "system"}}
        with httpx.stream("POST", f"{process.url}/v1/chat/completions", json=request, timeout=_LIMIT_S) as response:
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


def test_a_port_that_is_taken_stops_the_start_without_a_trace(tmp_path: Path) -> None:
    taken = bind(0)
    taken.listen()
    with taken, serving(ScriptedUpstream(ANSWERS).app, bind(0)) as upstream:
        process = Process(tmp_path, upstream, "--port", str(taken.getsockname()[1]), judge="none")
        assert process.wait() != 0
    assert any("address already in use" in line for line in process.lines)
    assert not any("Traceback" in line for line in process.lines)
