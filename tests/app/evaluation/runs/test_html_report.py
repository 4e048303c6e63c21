"""The report, and the comparison of two runs."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.evaluation.cases.case import Case
from app.evaluation.judging.evaluator import Evaluator
from app.evaluation.runs.run import run_cases
from app.evaluation.runs.run_comparison import compare_runs
from app.evaluation.runs.run_folder import RunFolder, RunFolderError
from judges.label_thresholds import Thresholds
from tests.support.judging.evaluation_cases import FALSE, TRUE, UNKNOWN, case, evaluator, ignore

pytestmark = pytest.mark.anyio

TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "table", "tr", "th", "td", "span", "p"} | {
    "details",
    "summary",
    "pre",
    "strong",
    "blockquote",
}
HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)> & \"quoted\""


async def run(folder: Path, cases: Sequence[Case], by: Evaluator) -> str:
    async with by:
        await run_cases(by, cases, RunFolder(folder), ignore)
    return (folder / "report.html").read_text("utf-8")


async def test_report_escapes_everything_and_loads_nothing(tmp_path: Path) -> None:
    said = f"The sign says {HOSTILE} in red."
    hostile = replace(case(1, said, document=f"{said} So it does."), case_id=HOSTILE, input=HOSTILE)
    page = await run(tmp_path, [hostile], evaluator())
    tags = set(re.findall(r"<(\w+)", page))
    assert tags <= TAGS
    assert "onerror=alert(1)&gt;" in page
    assert not re.search(r"(?:src|href)\s*=|url\(|@import|https?://", re.sub(r"&lt;.*?&gt;", "", page))
    assert "default-src 'none'" in page


async def test_report_shows_the_worst_first_with_verdict_and_passage(tmp_path: Path) -> None:
    page = await run(tmp_path, [case(1, TRUE), case(2, FALSE), case(3, f"{TRUE} {UNKNOWN}")], evaluator())
    order = re.findall(r"</span> (case-\d)</summary>", page)
    assert order == ["case-2", "case-3", "case-1"]
    assert '<strong class="contradicted">contradicted</strong>' in page
    assert "The ferry runs every forty minutes between the two harbours.</blockquote>" in page
    assert "bootstrap over cases" in page


async def test_changed_verdicts_are_matched_by_wording(tmp_path: Path) -> None:
    strict = Thresholds(entailment=1.0)
    await run(tmp_path / "a", [case(1, f"{TRUE} {UNKNOWN}"), case(2, TRUE), case(3, TRUE)], evaluator())
    cases = [case(1, f"{TRUE} {UNKNOWN}"), case(2, FALSE), case(4, TRUE)]
    await run(tmp_path / "b", cases, evaluator(thresholds=strict))
    found = compare_runs(tmp_path / "a", tmp_path / "b")
    assert [(flip.case_id, flip.text) for flip in found.worse] == [("case-1", TRUE)]
    assert found.better == []
    assert [flip.text for flip in compare_runs(tmp_path / "b", tmp_path / "a").better] == [TRUE]
    assert (found.cases, found.claims, found.claims_gone, found.claims_new) == (2, 2, 1, 1)
    assert (found.only_before, found.only_after) == (["case-3"], ["case-4"])
    assert (found.before.value, found.after.value, found.change.value) == (0.75, 0.0, -0.75)


async def test_run_equals_itself(tmp_path: Path) -> None:
    await run(tmp_path, [case(1, f"{TRUE} {FALSE}"), case(2)], evaluator())
    found = compare_runs(tmp_path, tmp_path)
    assert (found.flips, found.change.value, found.claims) == ([], 0.0, 3)


def test_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no run in this folder"):
        compare_runs(tmp_path / "a", tmp_path / "b")
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "x.json").write_text("{}")
    with pytest.raises(RunFolderError, match=r"x\.json: not a case result file"):
        compare_runs(tmp_path, tmp_path)
