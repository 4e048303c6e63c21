"""The same run on a Ray cluster of two cores on this machine. A cluster takes a while to start: opt in."""

import asyncio
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.evaluation.cases.case_files import read_cases
from app.evaluation.judging.evaluator import open_evaluator
from app.evaluation.runs.run import run_cases
from app.evaluation.runs.run_folder import RunFolder
from app.evaluation.runs.run_summary import Summary
from app.settings import Settings
from tests.support.judging.evaluation_cases import ignore

ROOT = Path(__file__).parents[4]
SAMPLE = ROOT / "app" / "evaluation" / "sample.jsonl"

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("GROUNDLANE_TEST_RAY") != "1" or importlib.util.find_spec("ray") is None,
        reason="needs the extra ray and GROUNDLANE_TEST_RAY=1",
    ),
]


def test_cluster_run_equals_a_local_run_and_can_resume_one(tmp_path: Path) -> None:
    """In a separate process, because Ray causes warnings. Three cases are judged here beforehand."""
    here, there = tmp_path / "here", tmp_path / "there"
    asyncio.run(local(here))
    asyncio.run(local(there, limit=3))
    before = files(there)
    arguments = ["eval", "run", "grounding", "--input", SAMPLE, "--output-dir", there, "--no-cache"]
    arguments += ["--engine", "ray", "--ray-address", "local", "--ray-judges", "2"]
    ended = subprocess.run(
        [sys.executable, "-c", "from app.cli.main import main; main()", *map(str, arguments)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    assert len(before) == 3
    assert files(there) == files(here)
    assert (there / "summary.json").read_text("utf-8") == (here / "summary.json").read_text("utf-8")


async def local(folder: Path, limit: int | None = None) -> Summary:
    async with open_evaluator(Settings(_env_file=None)) as by:
        return await run_cases(by, read_cases(SAMPLE, limit=limit), RunFolder(folder), ignore)


def files(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text("utf-8") for file in sorted((folder / "cases").iterdir())}
