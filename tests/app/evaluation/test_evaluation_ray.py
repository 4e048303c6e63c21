"""The same run on a Ray cluster of two cores on this machine. A cluster takes a while to start: opt in."""

import asyncio
import importlib.util
import os
from pathlib import Path

import pytest

from app.evaluation.cases import Case
from app.evaluation.evaluator import open_evaluator
from app.evaluation.ray_engine import Cluster, run_cases_on_ray
from app.evaluation.reading import read_cases
from app.evaluation.running import run_cases
from app.evaluation.store import RunFolder
from app.evaluation.summary import Summary
from app.settings import Settings
from tests.app.evaluation.cases import ignore

SAMPLE = Path(__file__).parents[3] / "app" / "evaluation" / "sample.jsonl"

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # Ray's own
    pytest.mark.skipif(
        os.environ.get("GROUNDLANE_TEST_RAY") != "1" or importlib.util.find_spec("ray") is None,
        reason="needs the extra ray and GROUNDLANE_TEST_RAY=1",
    ),
]


def test_a_cluster_gives_the_verdicts_of_a_local_run_and_goes_on_like_one(tmp_path: Path) -> None:
    settings = Settings(_env_file=None)
    cases = list(read_cases(SAMPLE))

    async def local() -> Summary:
        async with open_evaluator(settings) as by:
            return await run_cases(by, cases, RunFolder(tmp_path / "local"), ignore)

    async def cluster(taken: list[Case]) -> Summary:
        async with open_evaluator(settings, cache=tmp_path / "cache") as by:
            folder = RunFolder(tmp_path / "ray")
            return await run_cases_on_ray(
                by, taken, folder, ignore, settings=settings, cluster=Cluster(judges=2, address="local")
            )

    here = asyncio.run(local())
    part = asyncio.run(cluster(cases[:3]))
    there = asyncio.run(cluster(cases))
    assert (part.cases["scored"], part.errors) == (3, 0)
    assert there == here
    assert files(tmp_path / "ray") == files(tmp_path / "local")


def files(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text("utf-8") for file in sorted((folder / "cases").iterdir())}
