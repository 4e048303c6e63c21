"""Starts the workers, and finds the Python that has the libraries."""

import functools
import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.system.clients.scenario import Question, Refusal, Seen

DEADLINE_S = 180.0
ROOT = Path(__file__).parents[3]
SDK = ROOT / "sdk" / "src"
ENVIRONMENT = {
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
    "OTEL_SDK_DISABLED": "true",  # Guardrails AI
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
}
"""Settings that keep the libraries from calling home."""

_LOOK = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"


def python_with(module: str) -> str | None:
    """The Python that has ``module``: one of those in ``GROUNDLANE_TEST_CLIENTS``, which are separated as in ``PATH``,
    or else the one that runs the tests."""
    named = os.environ.get("GROUNDLANE_TEST_CLIENTS", "").split(os.pathsep)
    return next((python for python in (*named, sys.executable) if python and _has(python, module)), None)


@functools.cache
def _has(python: str, module: str) -> bool:
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "-c", _LOOK, module], check=False, timeout=DEADLINE_S).returncode == 0


def environment(**more: str) -> dict[str, str]:
    """The environment of a client's process."""
    return {**os.environ, **ENVIRONMENT, **more}


class Worker:
    """A process with one library loaded, which lives as long as the context."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, "-m", "tests.system.clients.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(PYTHONPATH=os.pathsep.join(map(str, (ROOT, SDK)))),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.communicate(timeout=DEADLINE_S)

    def ask(self, module: str, function: str, question: Question) -> Seen:
        """What a driver saw. Raises AssertionError with the driver's traceback, or at the deadline."""
        seen = self.call(module, function, **asdict(question))
        refusal = seen.pop("refusal")
        return Seen(**seen, refusal=Refusal(**refusal) if refusal else None)

    def call(self, module: str, function: str, **given: Any) -> Any:
        """The result of a function: a driver's, or one in a module given by its full name. Raises AssertionError as
        ``ask`` does."""
        reply = self._exchange(json.dumps([module, function, given]))
        if "failure" in reply:
            raise AssertionError(reply["failure"])
        return reply["seen"]

    def _exchange(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(DEADLINE_S, self._process.kill)
        timer.start()
        try:
            print(line, file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not answer:
            raise AssertionError(f"the client's process gave no answer within {DEADLINE_S} s")
        reply: dict[str, Any] = json.loads(answer)
        return reply
