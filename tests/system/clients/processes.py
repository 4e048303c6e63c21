"""Clients that are programs: ``curl``, and scripts for Node.js."""

import json
import os
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

from tests.support.apis.reply_reader import read_stream
from tests.system.clients.scenario import MODEL, PROMPT, Question, Refusal, Seen

DEADLINE_S = 60
HERE = Path(__file__).parent / "node"
NODE_HOME = Path(os.environ.get("GROUNDLANE_TEST_NODE", HERE))
"""The folder with the ``node_modules`` to test with."""


def curl(question: Question) -> Seen:
    messages = [{"role": "user", "content": PROMPT}]
    body = {"model": MODEL, "messages": messages, "stream": question.stream, **question.extension}
    command = ["curl", "-N", "-sS", "-w", "\n%{http_code}", "-H", "content-type: application/json"]
    done = run([*command, "-d", json.dumps(body), f"{question.base_url}/chat/completions"])
    raw, _, status = done.rpartition("\n")
    if status != "200":
        return Seen(refusal=Refusal.of(int(status), json.loads(raw)["error"]), everything=raw)
    if not question.stream:
        answer = json.loads(raw)
        choice = answer["choices"][0]
        return Seen(
            text=choice["message"]["content"],
            finish=choice["finish_reason"],
            verdict=answer.get("grounding", {}).get("verdict"),
            everything=raw,
        )
    reading = read_stream(raw.encode())
    verdicts = [chunk["grounding"]["verdict"] for chunk in reading.chunks if "verdict" in chunk.get("grounding", {})]
    assert reading.ends_with_done
    return Seen(
        text=reading.text(), finish=reading.finishes()[0], verdict=verdicts[0] if verdicts else None, everything=raw
    )


def node(script: str, question: Question, folder: Path) -> Seen:
    """The output of ``script`` in the folder ``node`` for that question: the fields of ``Seen`` as JSON."""
    shutil.copy(HERE / script, folder / script)
    modules(folder)
    asked = {**asdict(question), "extension": question.extension, "model": MODEL, "prompt": PROMPT}
    seen = json.loads(run(["node", script], cwd=folder, text=json.dumps(asked)))
    refusal = seen.pop("refusal", None)
    return Seen(**seen, refusal=Refusal(**refusal) if refusal else None)


def modules(folder: Path) -> None:
    """Let scripts in ``folder`` find the installed packages."""
    (folder / "node_modules").symlink_to(NODE_HOME / "node_modules", target_is_directory=True)


def run(command: list[str], *, cwd: Path | None = None, text: str = "", env: dict[str, str] | None = None) -> str:
    """The standard output of a program that must succeed."""
    done = subprocess.run(
        command, cwd=cwd, input=text, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    if done.returncode:
        raise AssertionError(f"{command[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-4000:]}")
    return done.stdout
