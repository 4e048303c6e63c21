"""The installed wheel, used from a project whose own packages are called ``app``, ``policies``, ``judges`` and
``migrations``: in the working directory, and first on ``PYTHONPATH``."""

import os
import re
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from groundlane_server import PACKAGES
from tests.support.gateways.server_process import Process

PYTHON = Path(os.environ.get("GROUNDLANE_TEST_WHEEL") or "missing")
GROUNDLANE = str(PYTHON.with_name("groundlane"))
README = Path(__file__).parents[3] / "README.md"
CHECK_IMPORTS = f"""
import {", ".join(PACKAGES)}
assert {{{", ".join(f"{package}.OWNER" for package in PACKAGES)}}} == {{"the project"}}
"""

pytestmark = [
    pytest.mark.wheel,
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.is_file(), reason="needs GROUNDLANE_TEST_WHEEL: make wheel"),
]

Run = Callable[..., str]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for package in PACKAGES:
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text('OWNER = "the project"\n')
    (folder / "app" / "main.py").write_text("raise RuntimeError('the application of the project')\n")
    return folder


@pytest.fixture
def run(project: Path, tmp_path: Path) -> Run:
    """Runs a command in the project, and returns its output once it has exited with the expected ``status``."""
    environment = {
        "PATH": f"{PYTHON.parent}:/usr/bin:/bin",
        "PYTHONPATH": str(project),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }

    def call(*command: str | Path, status: int = 0) -> str:
        done = subprocess.run(
            [str(word) for word in command], cwd=project, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    return call


def test_wheel_installs_only_its_own_name_and_no_training_code(run: Run) -> None:
    code = "from importlib.metadata import files\nprint(*files('groundlane'), sep='\\n')"
    installed = [Path(line) for line in run(PYTHON, "-c", code).splitlines()]
    assert {file.parts[0] for file in installed if file.parts[0] != ".."} == {
        "groundlane",
        "groundlane_server",
        "groundlane-0.2.0.dist-info",
    }
    assert [file for file in installed if "training" in file.parts or "tests" in file.parts] == []
    assert "groundlane/py.typed" in map(str, installed)


def test_larger_encoder_is_installed_beside_the_small_one(run: Run) -> None:
    code = "from importlib.metadata import files\nprint(*files('groundlane-judge-large'), sep='\\n')"
    installed = {Path(line).parent for line in run(PYTHON, "-c", code).splitlines() if "dist-info" not in line}
    assert installed == {Path("groundlane_server/judges/embedded/large")}
    code = (
        "import groundlane_server; groundlane_server.activate()\n"
        "from judges.cross_encoder import open_scorer; print(type(open_scorer('embedded-large')).__name__)"
    )
    assert run(PYTHON, "-c", code) == "SecondEncoderScorer\n"


def test_chain_of_the_readme_prints_the_documented_output(run: Run, project: Path) -> None:
    section = README.read_text("utf-8").partition("## In your own chain")[2]
    code, printed = re.findall(r"```(?:python|text)\n(.*?)```", section, re.DOTALL)[:2]
    (project / "chain.py").write_text(CHECK_IMPORTS + code + CHECK_IMPORTS)
    assert run(PYTHON, "chain.py").strip() == printed.strip()


def test_pytest_plugin(run: Run, project: Path) -> None:
    (project / "conftest.py").write_text('pytest_plugins = ["groundlane.evaluation.pytest_plugin"]\n')
    (project / "test_answers.py").write_text(
        CHECK_IMPORTS + "LEAFLET = ['Do not take more than 4 tablets in 24 hours.']\n"
        "def test_right(assert_grounded):\n"
        "    assert_grounded('Do not take more than 4 tablets in 24 hours.', LEAFLET)\n"
        "def test_wrong(assert_grounded):\n"
        "    assert_grounded('Do not take more than 8 tablets in 24 hours.', LEAFLET)\n"
    )
    printed = run(PYTHON, "-m", "pytest", "-q", "-W", "error", status=1)
    assert "1 failed, 1 passed" in printed
    assert "0 of 1 claims are supported (score 0.00, expected at least 1.00):" in printed


@pytest.mark.parametrize("command", [(GROUNDLANE,), (str(PYTHON), "-m", "groundlane_server")], ids=["script", "module"])
def test_two_workers_serve(project: Path, command: tuple[str, ...]) -> None:
    process = Process(project, "http://127.0.0.1:9", "--workers", "2", command=command, pythonpath=project)
    try:
        process.wait_until_up()
        body = {"text": "The plan costs 9 euros.", "documents": [{"text": "The plan costs 8 euros."}]}
        found = [httpx.post(f"{process.url}/v1/grounding/check", json=body, timeout=60).json() for _ in range(8)]
        assert [one["verdict"] for one in found] == ["has_contradictions"] * 8
    finally:
        assert process.stop() == 0, "".join(process.lines)


def test_database_is_upgraded(run: Run, project: Path) -> None:
    run(GROUNDLANE, "db", "upgrade")
    with sqlite3.connect(project / "groundlane.db") as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    database.close()
    assert {"alembic_version", "policies"} <= tables


def test_demo_ends(run: Run) -> None:
    assert run(GROUNDLANE, "demo", "--exit", "--port", "0")


def test_text_is_checked_and_cases_are_evaluated_by_several_processes(run: Run, project: Path) -> None:
    (project / "manual.txt").write_text("Do not take more than 4 tablets in 24 hours.\n")
    (project / "answer.txt").write_text("Do not take more than 8 tablets in 24 hours.\n")
    assert "has_contradictions" in run(GROUNDLANE, "check", "answer.txt", "manual.txt", status=1)
    (project / "cases.jsonl").write_text(run(GROUNDLANE, "eval", "sample"))
    run(GROUNDLANE, "eval", "run", "grounding", "-i", "cases.jsonl", "-o", "out", "--processes", "2")
    assert (project / "out" / "summary.json").is_file()
