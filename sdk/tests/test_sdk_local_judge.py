"""Tests the judge process from the program that starts it, with a small scripted process and with the real one."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from groundlane import GatewayStatusError, GatewayTimeoutError, JudgeProcessError
from groundlane._local import checks, process
from groundlane._local.checks import LocalChecks, SharedJudge
from groundlane._local.process import JudgeProcess
from groundlane.integrations import Guard

CHECK = {"service": "check"}
PLANS, LIE = "The plan costs 9 euros.", "The plan costs 8 euros."
DOCUMENTS = [{"text": PLANS}]
SERVED = """
import json, os, sys, time
print("a line that is no answer", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    request = message.get("request", {})
    if "cancel" in message:
        print(f"cancelled {message['cancel']}", file=sys.stderr, flush=True)
    elif "exit" in request:
        os._exit(request["exit"])
    elif "wait" not in request:
        answer = {"status": request.get("status", 200), "body": request.get("body", request)}
        print(json.dumps({"id": message["id"], **answer}), flush=True)
"""


def start(**options: Any) -> JudgeProcess:
    return JudgeProcess(options.pop("service", CHECK), command=[sys.executable, "-c", SERVED], **options)


@pytest.fixture
def judge() -> Iterator[JudgeProcess]:
    started = start()
    yield started
    started.close()


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, judge: JudgeProcess) -> SharedJudge:
    """Make the scripted process the shared judge of all checks."""
    one = SharedJudge()
    one._process = judge
    monkeypatch.setattr(checks, "_shared", one)
    return one


def test_concurrent_requests_get_their_own_answers(judge: JudgeProcess) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = list(pool.map(lambda number: judge.ask({"number": number}).result(10), range(200)))
    assert asked == [(200, {"number": number}) for number in range(200)]


def test_request_larger_than_the_pipe_buffer_is_sent_and_answered(judge: JudgeProcess) -> None:
    text = "é\u2028\n" * 400_000
    assert judge.ask({"text": text}).result(30) == (200, {"text": text})


def test_invalid_json_fails_only_its_own_request(judge: JudgeProcess) -> None:
    with pytest.raises(TypeError):
        judge.ask({"text": object()})
    assert judge.ask({"n": 1}).result(10) == (200, {"n": 1})


def test_cancelling_a_request_notifies_the_process(capfd: pytest.CaptureFixture[str]) -> None:
    judge = start()
    assert judge.ask({"wait": True}).cancel()
    assert judge.ask({"n": 1}).result(10)[0] == 200
    judge.close()
    assert "cancelled 1" in capfd.readouterr().err


def test_process_exit_fails_pending_requests_with_the_exit_status(judge: JudgeProcess) -> None:
    waiting = judge.ask({"wait": True})
    judge.ask({"exit": 7})
    with pytest.raises(JudgeProcessError, match="exited with status 7"):
        waiting.result(10)
    assert not judge.running
    with pytest.raises(JudgeProcessError, match="exited with status 7"):
        judge.ask({"n": 1})


def test_closing_fails_pending_requests_and_kills_a_hung_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_EXIT_TIMEOUT_S", 0.2)
    hung = JudgeProcess(
        CHECK,
        command=[
            sys.executable,
            "-c",
            'import time; input(); print(\'{"id": 0, "status": 200, "body": {}}\', flush=True); time.sleep(600)',
        ],
    )
    waiting = hung.ask({"n": 1})
    hung.close()
    with pytest.raises(JudgeProcessError, match="is closed"):
        waiting.result(10)
    assert hung._child.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("service", "timeout", "error", "message"),
    [
        ({"status": 400, "body": {"error": {"message": "GROUNDLANE_JUDGE: unknown"}}}, 10, ValueError, "unknown"),
        ({"exit": 3}, 10, JudgeProcessError, "exited with status 3"),
        ({"wait": True}, 0.1, JudgeProcessError, r"not ready within 0\.1 s"),
    ],
)
def test_process_that_does_not_start_reports_the_reason(
    service: dict[str, Any], timeout: float, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        start(service=service, start_timeout=timeout)


def test_missing_package_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match="pip install groundlane"):
        JudgeProcess(CHECK)


def test_judge_process_gets_the_whole_check(shared: SharedJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_read", lambda *answer: answer)
    given: Any = {"documents": DOCUMENTS, "question": "Is it cheap?", "policy": "p", "options": {"max_claims": 3}}
    local = LocalChecks()
    assert local.check("a", **given) == (200, {"text": "a", **given})
    assert asyncio.run(local.acheck("a", **given)) == (200, {"text": "a", **given})


def test_late_answer_is_an_error_sync_and_async(shared: SharedJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_request", lambda *_: {"wait": True})
    local = LocalChecks(timeout=0.05)
    with pytest.raises(GatewayTimeoutError, match=r"within 0\.05 s"):
        local.check("a", documents=[])
    with pytest.raises(GatewayTimeoutError, match=r"within 0\.05 s"):
        asyncio.run(local.acheck("a", documents=[]))


def test_judge_error_is_raised_as_a_gateway_error(shared: SharedJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = {"status": 500, "body": {"error": {"message": "The check failed.", "type": "server_error"}}}
    monkeypatch.setattr(checks, "_request", lambda *_: refusal)
    with pytest.raises(GatewayStatusError, match="The check failed"):
        Guard(in_process=True).check(PLANS, DOCUMENTS)
    assert Guard(in_process=True, on_error="open").check(PLANS, DOCUMENTS).name == "not_checked"


@pytest.mark.parametrize("name", ["base_url", "api_key"])
def test_gateway_and_local_judge_exclude_each_other(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Guard(in_process=True, **{name: "http://gateway"})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_process_leaves_the_judge_to_its_parent(judge: JudgeProcess, shared: SharedJudge) -> None:
    """A forked child neither uses nor stops the process, even if another thread of the parent was holding the lock."""
    shared._starting.acquire()
    child = os.fork()
    if child == 0:
        shared.forget()
        shared._starting.acquire()
        os._exit(0 if not judge.running and shared.running is None else 1)
    shared._starting.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert judge.ask({"n": 1}).result(10) == (200, {"n": 1})


# With the embedded judge


@pytest.fixture(scope="module")
def guard() -> Guard:
    return Guard(in_process=True, timeout=60)


@pytest.mark.slow
def test_threads_and_event_loops_can_ask_concurrently(guard: Guard) -> None:
    async def ask() -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(guard.acheck(PLANS, DOCUMENTS)) for _ in range(4)]
        return [task.result().name for task in tasks]

    with ThreadPoolExecutor(4) as pool:
        loops = [pool.submit(asyncio.run, ask()) for _ in range(2)]
        plain = [pool.submit(guard.check, LIE, DOCUMENTS) for _ in range(4)]
        assert [name for loop in loops for name in loop.result()] == ["supported"] * 8
        assert {one.result().blocked for one in plain} == {True}
    assert asyncio.run(ask()) == ["supported"] * 4, "in a different loop"


@pytest.mark.slow
def test_embedded_judge_reads_the_question(guard: Guard) -> None:
    assert guard.check("Yes.", DOCUMENTS, question="Does the plan cost 9 euros?").name == "supported"
    assert guard.check("Yes.", DOCUMENTS, question="Does the plan cost 8 euros?").name != "supported"
    assert guard.check("Yes.", DOCUMENTS).name == "has_unverifiable"


@pytest.mark.slow
def test_killed_judge_is_restarted(guard: Guard) -> None:
    running = checks._shared.running
    assert running is not None
    os.kill(running._child.pid, signal.SIGKILL)
    running._child.wait()
    eventually(lambda: not running.running)
    assert guard.check(PLANS, DOCUMENTS).name == "supported"
    assert checks._shared.running is not running


@pytest.mark.slow
def test_invalid_setting_is_reported_when_the_guard_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_shared", SharedJudge())
    monkeypatch.setenv("GROUNDLANE_JUDGE", "oracle:delphi")
    with pytest.raises(ValueError, match="GROUNDLANE_JUDGE"):
        Guard(in_process=True)


PROGRAM = """
import os, signal, sys
from groundlane.integrations import Guard
from groundlane._local import checks
guard = Guard(in_process=True)
print(guard.check("It costs 9 euros.", [{"text": "It costs 9 euros."}]).name, checks._shared.running._child.pid)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"app", "judges", "policies", "migrations"}))
sys.stdout.flush()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("last", "status"),
    [("", 0), ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL), ("os.kill(os.getpid(), signal.SIGINT)", None)],
    ids=["end", "killed", "interrupted"],
)
def test_judge_ends_with_the_program_and_imports_nothing_into_it(tmp_path: Path, last: str, status: int | None) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", PROGRAM + last], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    first, second = done.stdout.splitlines()
    name, pid = first.split()
    assert (name, second) == ("supported", "[]")
    if status is not None:
        assert (done.returncode, done.stderr) == (status, "")
    eventually(lambda: not alive(int(pid)))
    gc.collect()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text() if os.path.exists("/proc") else True


def eventually(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
