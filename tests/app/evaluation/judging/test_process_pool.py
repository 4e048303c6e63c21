"""Judging in other processes gives the same verdicts as in this one, even if a process dies."""

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from app.cli.evaluation import JudgeOption, default_processes
from app.evaluation.cases.case_result import CaseResult
from app.evaluation.judging.evaluator import Evaluator, open_evaluator
from app.evaluation.judging.process_pool import Processes
from app.settings import Settings
from judges.cross_encoder.model_files import cores
from tests.support.judging.evaluation_cases import FALSE, TRUE, UNKNOWN, case, evaluate_all, evaluator

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROOT = Path(__file__).parents[4]
CASES = [case(1), case(2, f"{TRUE} {FALSE}"), case(3, f"{UNKNOWN} {TRUE}"), case(4, FALSE)]


def opened(processes: int, cache: Path | None = None) -> Evaluator:
    return open_evaluator(Settings(_env_file=None), cache=cache, processes=processes)


async def judged(by: Evaluator) -> Sequence[CaseResult]:
    async with by:
        return await evaluate_all(by, CASES)


async def test_verdicts_equal_those_of_one_process_and_are_cached(tmp_path: Path) -> None:
    here, there = await judged(opened(0)), await judged(opened(2, tmp_path / "cache"))
    assert there == here
    assert [result.score for result in here] == [1.0, 0.5, 0.5, 0.0]
    again = opened(2, tmp_path / "cache")
    async with again:
        assert all(result.cached for result in await evaluate_all(again, CASES))
        assert again.judged == 0


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[ProcessPoolExecutor]:
    """The pools that are opened."""
    found: list[ProcessPoolExecutor] = []
    make = Processes._open

    def keep(processes: Processes) -> ProcessPoolExecutor:
        found.append(make(processes))
        return found[-1]

    monkeypatch.setattr(Processes, "_open", keep)
    return found


async def test_killed_process_is_replaced(pools: list[ProcessPoolExecutor]) -> None:
    async with opened(1) as by:
        assert (await by.evaluate(CASES[0])).score == 1.0
        (process,) = pools[0]._processes.values()
        os.kill(process.pid or 0, signal.SIGKILL)
        results = await evaluate_all(by, CASES)
    assert [(result.score, result.error) for result in results] == [(1.0, None), (0.5, None), (0.5, None), (0.0, None)]
    assert len(pools) == 2


async def test_case_that_kills_every_process_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = multiprocessing.get_context("spawn")
    monkeypatch.setattr(Processes, "_open", lambda _: ProcessPoolExecutor(1, spawn, os._exit, (3,)))
    here = evaluator()
    by = Evaluator(here.judge, processes=Processes(Settings(_env_file=None), here.judge, 1))
    async with by:
        result = await by.evaluate(case())
    assert (result.score, result.error) == (None, "the judging process exited unexpectedly")


async def test_process_that_cannot_load_its_judge_is_reported(pools: list[ProcessPoolExecutor]) -> None:
    other = evaluator().judge
    processes = Processes(Settings(_env_file=None), other, 1)
    async with Evaluator(other, processes=processes) as by:
        result = await by.evaluate(case())
    assert result.error is not None
    assert result.error.startswith("the judging process could not start: this process has the judge embedded")
    assert len(pools) == 1


async def test_cancelled_cases_end_their_processes(
    pools: list[ProcessPoolExecutor], caplog: pytest.LogCaptureFixture
) -> None:
    by = opened(1)
    async with by:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(by.evaluate(one)) for one in CASES]
            await asyncio.sleep(0)
            (process,) = pools[0]._processes.values()
            for task in tasks:
                task.cancel()
        await by.aclose()
        assert process.exitcode == -signal.SIGTERM
        assert (await by.evaluate(CASES[0])).score is None
    gc.collect()
    assert not [one for one in caplog.records if one.levelno > logging.WARNING]
    assert len(pools) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no masks of signals")
async def test_processes_ignore_ctrl_c_even_while_they_start(pools: list[ProcessPoolExecutor]) -> None:
    async with opened(1) as by:
        await by.evaluate(CASES[0])
        there = await asyncio.wrap_future(pools[0].submit(signal.pthread_sigmask, signal.SIG_BLOCK, []))
    assert signal.SIGINT in there
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM to take")
async def test_sigterm_ends_the_processes_and_explains_how_to_resume(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_text('{"output": "The ferry runs.", "context": "The ferry runs."}')
    script = (
        "import asyncio, os, signal\n"
        "from app.cli.main import main\n"
        "from app.evaluation.runs import run\n"
        "async def ended(*_):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    await asyncio.Event().wait()\n"
        "run.run_cases = ended\n"
        "main()\n"
    )
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script, "eval", "run", "grounding", "--no-cache", "-i", "cases.jsonl", "-o", "out"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.stderr == "Stopped. The results are kept; run the same command to resume.\n"
    assert ended.returncode == 128 + signal.SIGTERM


async def test_no_process_outlives_a_run_that_is_killed() -> None:
    """The processes hold the end of the pipe that the run printed to, so it closes when the last of them has exited."""
    script = (
        "import asyncio, os, signal\n"
        "from tests.app.evaluation.judging.test_process_pool import CASES, opened\n"
        "async def main():\n"
        "    async with opened(2) as by:\n"
        "        await by.evaluate(CASES[0])\n"
        "        print('judged', flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout == "judged\n"


@pytest.mark.skipif(cores() < 2, reason="one core: nothing to share out")
@pytest.mark.parametrize(
    ("name", "judge", "total", "processes"),
    [
        ("embedded", JudgeOption.CROSS_ENCODER, 200, cores()),
        ("embedded", JudgeOption.CROSS_ENCODER, 199, 0),
        ("embedded", JudgeOption.CASCADE, 1000, 0),
        ("embedded", JudgeOption.LLM, 1000, 0),
        ("http://judge:8080", JudgeOption.CROSS_ENCODER, 1000, 0),
    ],
)
async def test_long_run_of_the_embedded_judge_has_one_process_per_core(
    name: str, judge: JudgeOption, total: int, processes: int
) -> None:
    assert default_processes(Settings(_env_file=None, judge=name), judge, total) == processes
