"""The assertion for tests, the plugin, and the sync and async ways from Python."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.evaluation import CaseError, GroundingTester, aevaluate
from app.evaluation.pytest_plugin import check_grounded
from judges.protocols import JudgeOverloadedError
from judges.testing import ScriptedJudge
from tests.support.evaluation_cases import DOCUMENT, FALSE, TRUE, UNKNOWN, case, evaluator

ROOT = Path(__file__).parents[3]


def test_what_is_not_supported_is_named() -> None:
    with GroundingTester(evaluator()) as tester:
        check_grounded(tester, TRUE, DOCUMENT)
        check_grounded(tester, "Hello!", [DOCUMENT])
        check_grounded(tester, f"{TRUE} {FALSE}", [{"text": DOCUMENT}], score=0.5)
        with pytest.raises(AssertionError) as failure:
            check_grounded(tester, f"{TRUE} {FALSE} {UNKNOWN}", [DOCUMENT], score=0.9)
    told = str(failure.value)
    assert told.startswith("1 of 3 claims are supported (score 0.33, wanted 0.90):\n")
    assert f"contradicted, 0.96: {FALSE}" in told or f": {FALSE}" in told
    assert f"    nearest passage, of 'doc-1': {DOCUMENT}" in told


def test_no_documents_and_no_judge_fail() -> None:
    with GroundingTester(evaluator()) as tester:
        with pytest.raises(AssertionError, match="no documents"):
            check_grounded(tester, TRUE, [])
        with pytest.raises(CaseError, match=r"documents\[0\].text: a document needs a text"):
            check_grounded(tester, TRUE, [{"source": "a"}])
    with (
        GroundingTester(evaluator(ScriptedJudge(error=JudgeOverloadedError("x")))) as tester,
        pytest.raises(AssertionError, match="could not be judged"),
    ):
        check_grounded(tester, TRUE, [DOCUMENT])


@pytest.mark.anyio
async def test_the_same_where_an_event_loop_runs() -> None:
    async with evaluator() as by:
        (result,) = await aevaluate([case(1, FALSE)], by)
    assert result.score == 0.0


@pytest.mark.slow
def test_the_plugin_in_a_project_of_its_own(tmp_path: Path) -> None:
    """With the embedded judge, once a session, in a process of its own."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["app.evaluation.pytest_plugin"]\n')
    (tmp_path / "test_answers.py").write_text(
        "LEAFLET = ['Do not take more than 4 tablets in 24 hours.']\n"
        "def test_right(assert_grounded):\n"
        "    assert_grounded('Do not take more than 4 tablets in 24 hours.', LEAFLET)\n"
        "def test_wrong(assert_grounded):\n"
        "    assert_grounded('Do not take more than 8 tablets in 24 hours.', LEAFLET)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout
    assert "0 of 1 claims are supported (score 0.00, wanted 1.00):" in ended.stdout
