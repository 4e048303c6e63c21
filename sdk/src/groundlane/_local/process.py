"""The client side of the judge process. Client and judge exchange one JSON object per line, over a pipe in each
direction.

The other end is ``app.judge_server.sdk_process`` in the package ``groundlane``. The judge runs in a separate process,
so that its packages cannot conflict with packages of the same name in the user's program.
"""

import atexit
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from importlib.util import find_spec
from queue import SimpleQueue
from typing import Any, Final, cast
from weakref import WeakSet

from groundlane._errors import JudgeProcessError

_START_TIMEOUT_S: Final = 120.0
"""The time limit for starting. It is long enough to import the judge and load its model on a busy machine."""
_EXIT_TIMEOUT_S: Final = 5.0

Answer = tuple[int, Mapping[str, Any]]
"""An HTTP status and the JSON body."""


class JudgeProcess:
    """A running judge process. This class is thread-safe and handles several requests concurrently.

    ``service`` is the first request to the process: ``{"service": "check"}``, or ``{"service": "evaluate", ...}`` with
    options. The process inherits the environment and the working directory. It exits when ``close`` is called or when
    this process exits for any reason.

    Raises ImportError if the package ``groundlane`` is not installed, and JudgeProcessError if the process does not
    start. Raises ValueError for an invalid setting or option, or if the judge cannot be loaded.
    """

    def __init__(
        self,
        service: Mapping[str, Any],
        *,
        command: Sequence[str] | None = None,
        start_timeout: float = _START_TIMEOUT_S,
    ) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Answer]] = {}
        self._count = 0
        self._ended: str | None = None
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        # The pipes are unbuffered, so that a forked child can close them without flushing anything into them. The new
        # session keeps Ctrl-C in a terminal from reaching the judge process; this process ends the judge process
        # instead.
        self._child = subprocess.Popen(  # noqa: S603 - this interpreter, with arguments of ours
            command or _command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._write, self._read)]
        for thread in self._threads:
            thread.start()
        _running.add(self)
        try:
            status, body = self.ask(service).result(start_timeout)
        except TimeoutError:
            self.close()
            raise JudgeProcessError(f"The judge process was not ready within {start_timeout:g} s.") from None
        except BaseException:
            self.close()
            raise
        if status >= 400:
            self.close()
            raise ValueError(body["error"]["message"])

    @property
    def running(self) -> bool:
        return self._ended is None

    def ask(self, request: Mapping[str, Any]) -> "Future[Answer]":
        """Send ``request`` and return a future for the response. Cancel the future to stop the work.

        Raises TypeError if ``request`` is not JSON. If the process has exited, JudgeProcessError is raised immediately
        or by the future.
        """
        answer: Future[Answer] = Future()
        with self._lock:
            if self._ended is not None:
                raise JudgeProcessError(self._ended)
            number = self._count
            line = _encode({"id": number, "request": request})
            self._count += 1
            self._waiting[number] = answer
            self._lines.put(line)
        answer.add_done_callback(lambda done: self._cancel(number) if done.cancelled() else None)
        return answer

    def close(self) -> None:
        """End the process. Pending requests fail with JudgeProcessError."""
        self._fail("The judge process is closed.")
        self._lines.put(None)
        try:
            self._child.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        for thread in self._threads:
            thread.join()

    def leave_to_parent(self) -> None:
        """Detach from the judge process after a fork, because only the parent may use or end it."""
        self._ended = "The judge process belongs to the parent process. It can't be used after a fork."
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                stream.close()
        self._child.returncode = 0  # The judge process is not a child of this process, so it cannot be waited for.

    def _cancel(self, number: int) -> None:
        with self._lock:
            self._waiting.pop(number, None)
        self._lines.put(_encode({"cancel": number}))

    def _write(self) -> None:
        """Write requests to the pipe. This runs in a thread, so that callers never block on the pipe."""
        stdin = self._child.stdin
        assert stdin is not None  # noqa: S101 - a pipe was asked for
        with suppress(OSError), stdin:  # OSError: the process has exited, which the reader thread reports.
            while (line := self._lines.get()) is not None:
                rest = memoryview(line)
                while rest:
                    rest = rest[stdin.write(rest) :]

    def _read(self) -> None:
        stdout = self._child.stdout
        assert stdout is not None  # noqa: S101 - a pipe was asked for
        with io.BufferedReader(cast(io.FileIO, stdout)) as lines:
            for line in lines:
                with suppress(ValueError):  # Something was printed while the interpreter started.
                    self._settle(json.loads(line))
        self._lines.put(None)
        self._fail(f"The judge process exited with status {self._child.wait()}.")

    def _settle(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            answer = self._waiting.pop(message["id"], None)
        if answer is not None and answer.set_running_or_notify_cancel():
            answer.set_result((message["status"], message["body"]))

    def _fail(self, reason: str) -> None:
        with self._lock:
            self._ended = self._ended or reason
            waiting = list(self._waiting.values())
            self._waiting.clear()
        for answer in waiting:
            if answer.set_running_or_notify_cancel():
                answer.set_exception(JudgeProcessError(reason))


_running: "WeakSet[JudgeProcess]" = WeakSet()


def _command() -> list[str]:
    if find_spec("groundlane_server") is None:
        raise ImportError("a local judge requires the package groundlane: pip install groundlane")
    # -P keeps the working directory, which has the user's packages, off the module search path.
    return [sys.executable, "-P", "-m", "groundlane_server.judge_process"]


def _encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _close_all() -> None:
    for process in list(_running):
        process.close()


def _leave_all_to_parent() -> None:
    for process in list(_running):
        process.leave_to_parent()
    _running.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)
