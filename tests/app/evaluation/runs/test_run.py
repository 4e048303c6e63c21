"""Runs with a folder: nothing is judged twice, no file is incomplete, and failed cases are retried."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.evaluation.cases.case import Case, Scoring, ScoringMode
from app.evaluation.cases.case_result import CaseResult
from app.evaluation.judging.evaluator import Evaluator
from app.evaluation.runs.run import MAX_CONSECUTIVE_FAILURES, RunStoppedError, run_cases
from app.evaluation.runs.run_folder import RunFolder, RunFolderError, file_name
from app.evaluation.runs.run_summary import Summary
from judges.protocols import JudgeOverloadedError
from judges.testing import ScriptedJudge, entails
from tests.support.judging.evaluation_cases import (
    FALSE,
    TRUE,
    UNKNOWN,
    case,
    collect,
    evaluate_all,
    evaluator,
    ignore,
    scripted,
)

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[4]


async def run(folder: Path, cases: Sequence[Case], by: Evaluator) -> Summary:
    async with by:
        return await run_cases(by, cases, RunFolder(folder), ignore)


def files(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text("utf-8") for file in sorted((folder / "cases").iterdir())}


async def test_summary_agrees_with_the_files(tmp_path: Path) -> None:
    cases = [
        case(1),
        case(2, f"{TRUE} {FALSE}"),
        case(3, f"{TRUE} {UNKNOWN}"),
        case(4, "Hello! How are you?"),
        Case(case_id="case-5", output=TRUE),
        case(6, scoring=Scoring(enabled=False)),
    ]
    lines, progress = collect()
    by = evaluator()
    async with by:
        summary = await run_cases(by, cases, RunFolder(tmp_path), progress)
    assert summary.cases == {"total": 6, "scored": 3, "no_context": 1, "no_claims": 1, "disabled": 1, "errors": 0}
    assert summary.claims == {"total": 5, "accepted": 3, "rejected": 2, "contradicted": 1, "unverifiable": 1}
    assert summary.score.value == pytest.approx((1.0 + 0.5 + 0.5) / 3)
    assert summary.claims_accepted.value == 3 / 5
    assert summary.grounded_cases.value == 1 / 3
    assert {line.case_id for line in lines} == {f"case-{number}" for number in range(1, 7)}
    assert len(files(tmp_path)) == 6
    written = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    assert written["score"]["value"] == summary.score.value
    assert "bootstrap" in written["score"]["method"]


async def test_second_run_uses_only_the_cache_and_gives_the_same_result(tmp_path: Path) -> None:
    cases = [case(1), case(2, f"{TRUE} {FALSE}"), case(3, "Hello!")]
    first, second = scripted(), scripted()
    before = await run(tmp_path / "a", cases, evaluator(first, tmp_path / "cache"))
    after = await run(tmp_path / "b", cases, evaluator(second, tmp_path / "cache"))
    assert first.pairs
    assert second.pairs == []
    assert after.cached_cases == 3
    assert (after.score, after.claims, after.cases) == (before.score, before.claims, before.cases)
    as_before = {
        name: text.replace('"cached": true', '"cached": false') for name, text in files(tmp_path / "b").items()
    }
    assert as_before == files(tmp_path / "a")


async def test_equal_cases_are_judged_once_even_concurrently(tmp_path: Path) -> None:
    by = evaluator(cache=tmp_path / "cache")
    async with by:
        results = await evaluate_all(by, [case(number) for number in range(8)])
    assert by.judged == 1
    assert [result.score for result in results] == [1.0] * 8


async def test_change_of_document_threshold_or_judge_is_judged_again() -> None:
    by, other = evaluator(), evaluator(ScriptedJudge(name="other"))
    async with by, other:
        keys = {
            by.key(case()),
            by.key(case(document="Another text.")),
            by.key(case(output=FALSE)),
            other.key(case()),
        }
        assert len(keys) == 4
        assert by.key(case(1)) == by.key(case(2, scoring=Scoring(mode=ScoringMode.SCALE)))


async def test_killed_run_can_be_resumed(tmp_path: Path) -> None:
    """The process is killed from inside after five results; the next one judges only what is left."""
    script = (
        "import asyncio, os, signal, sys\n"
        "from pathlib import Path\n"
        "from app.evaluation.runs.run import run_cases\n"
        "from app.evaluation.runs.run_folder import RunFolder\n"
        "from tests.support.judging.evaluation_cases import TRUE, case, evaluator\n"
        "seen = []\n"
        "def progress(line):\n"
        "    seen.append(line)\n"
        "    if len(seen) == 5:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "async def main():\n"
        "    async with evaluator() as by:\n"
        "        cases = [case(n, f'{TRUE} Number {n} is written here.') for n in range(20)]\n"
        "        await run_cases(by, cases, RunFolder(Path(sys.argv[1])), progress)\n"
        "asyncio.run(main())\n"
    )
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert killed.returncode == -9
    done = files(tmp_path)
    whole = {name for name, text in done.items() if not name.startswith(".") and json.loads(text)}
    assert len(whole) >= 5
    judge = scripted()
    cases = [case(number, f"{TRUE} Number {number} is written here.") for number in range(20)]
    summary = await run(tmp_path, cases, evaluator(judge))
    asked = {claim for _, claim in judge.pairs if claim.startswith("Number")}
    assert len(asked) == 20 - len(whole)
    assert summary.cases["scored"] == 20
    assert {name: text for name, text in files(tmp_path).items() if name in whole} == {
        name: done[name] for name in whole
    }
    assert len(files(tmp_path)) == 20


async def test_corrupt_file_is_rewritten(tmp_path: Path) -> None:
    await run(tmp_path, [case(1), case(2)], evaluator())
    (tmp_path / "cases" / "case-1.json").write_text('{"case_id": "case-1", "outp', "utf-8")
    judge = scripted()
    await run(tmp_path, [case(1), case(2)], evaluator(judge))
    assert len(judge.calls) == 1
    assert json.loads(files(tmp_path)["case-1.json"])["metrics"][0]["score"] == 1.0


async def test_change_of_scoring_mode_needs_no_judge(tmp_path: Path) -> None:
    await run(tmp_path, [case(1, f"{TRUE} {UNKNOWN}")], evaluator())
    judge = scripted()
    scoring = Scoring(mode=ScoringMode.SCALE, include_reasoning=True)
    await run(tmp_path, [case(1, f"{TRUE} {UNKNOWN}", scoring=scoring)], evaluator(judge))
    assert judge.pairs == []
    (metric,) = json.loads(files(tmp_path)["case-1.json"])["metrics"]
    first, second, reasoning = metric["result"]
    assert (first["raw_score"], second["verdict"]) == (5, "REJECTED")
    assert UNKNOWN in reasoning["reasoning"]


async def test_files_of_removed_cases_are_deleted(tmp_path: Path) -> None:
    await run(tmp_path, [case(1), case(2)], evaluator())
    await run(tmp_path, [case(2)], evaluator())
    assert list(files(tmp_path)) == ["case-2.json"]


async def test_failed_cases_are_not_cached_and_are_retried(tmp_path: Path) -> None:
    broken = ScriptedJudge(error=JudgeOverloadedError("too much"))
    summary = await run(tmp_path / "out", [case(1)], evaluator(broken, tmp_path / "cache"))
    assert (summary.errors, summary.score.value) == (1, None)
    (metric,) = json.loads(files(tmp_path / "out")["case-1.json"])["metrics"]
    assert (metric["score"], metric["error"]) == (None, "1 of 1 claims could not be judged: overloaded")
    summary = await run(tmp_path / "out", [case(1)], evaluator(scripted(), tmp_path / "cache"))
    assert (summary.errors, summary.score.value) == (0, 1.0)


async def test_judge_that_always_fails_ends_the_run(tmp_path: Path) -> None:
    broken = ScriptedJudge(error=JudgeOverloadedError("too much"))
    with pytest.raises(RunStoppedError, match=f"{MAX_CONSECUTIVE_FAILURES} cases in a row failed"):
        await run(tmp_path, [case(number) for number in range(100)], evaluator(broken))
    assert not (tmp_path / "summary.json").exists()


async def test_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(RunFolderError, match="taken"):
        await run(tmp_path / "taken", [case(1)], evaluator())
    with pytest.raises(RunFolderError, match="no run"):
        list(RunFolder(tmp_path / "none").results())


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/b", "..", "Case", "x" * 300, "", "é", "a\x00b", ".part", "-rf"]
)
def test_ids_cannot_leave_the_folder_or_share_a_file(name: str) -> None:
    made = file_name(name)
    assert "/" not in made
    assert "\x00" not in made
    assert not made.startswith((".", "-"))
    assert len(made) <= 120
    assert made != file_name(name + "!") != file_name(name.lower() + "?")


async def test_results_come_in_the_order_of_the_cases() -> None:
    judge = ScriptedJudge(default=entails())
    async with evaluator(judge) as by:
        results: Sequence[CaseResult] = await evaluate_all(by, [case(number) for number in range(30)])
    assert [result.case.case_id for result in results] == [f"case-{number}" for number in range(30)]
