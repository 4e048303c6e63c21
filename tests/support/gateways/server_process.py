"""``groundlane serve`` as a child process, for tests that need a real process."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import httpx

LIMIT_S = 120.0
ROOT = Path(__file__).parents[3]
"""The root of this source tree, which is used even if the package is installed."""
_RUNNING = re.compile(r"Uvicorn running on (http://127\.0\.0\.1:\d+)")


class Process:
    """The child process. ``lines`` are its stderr output, and ``url`` is its address. ``settings`` and ``environment``
    become its environment variables."""

    def __init__(
        self,
        folder: Path,
        upstream: str,
        *arguments: str,
        command: Sequence[str] = (sys.executable, "-m", "groundlane_server"),
        pythonpath: Path = ROOT,
        scratch: Path | None = None,
        environment: Mapping[str, str] | None = None,
        **settings: str,
    ) -> None:
        variables: Mapping[str, str] = {
            **(environment or {}),
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": str(pythonpath),
            "TMPDIR": str(scratch or folder),
            "GROUNDLANE_UPSTREAM_BASE_URL": f"{upstream}/v1",
            "GROUNDLANE_JUDGE_THREADS": "1",
            **{f"GROUNDLANE_{name.upper()}": value for name, value in settings.items()},
        }
        self.child = subprocess.Popen(
            [*command, "serve", "--port", "0", *arguments],
            cwd=folder,
            env=variables,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
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
        assert self._up.wait(LIMIT_S), "not up in time"
        assert self.url, "".join(self.lines)
        # With several workers, the port is known before any of them listens.
        deadline, tick = time.monotonic() + LIMIT_S, Event()
        while not self._answers():
            assert time.monotonic() < deadline, "no answer in time"
            tick.wait(0.05)

    def wait_for(self, *parts: str) -> None:
        """Wait until the process has written a line that contains all of ``parts``."""
        deadline, tick = time.monotonic() + LIMIT_S, Event()
        while not any(all(part in line for part in parts) for line in list(self.lines)):
            assert time.monotonic() < deadline, f"no line with {parts}"
            tick.wait(0.02)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz", timeout=LIMIT_S).status_code == 200
        except httpx.ConnectError:
            return False

    def stop(self) -> int:
        self.child.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """Kill the process and its workers, regardless of their state."""
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        code = self.child.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        return code


@contextmanager
def gateway(
    folder: Path,
    upstream: str,
    *arguments: str,
    scratch: Path | None = None,
    environment: Mapping[str, str] | None = None,
    **settings: str,
) -> Iterator[Process]:
    process = Process(folder, upstream, *arguments, scratch=scratch, environment=environment, **settings)
    try:
        process.wait_until_up()
        yield process
    finally:
        process.kill()
