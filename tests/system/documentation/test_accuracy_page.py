"""The page on accuracy describes the model in the package."""

import json
from pathlib import Path

import pytest

from benchmarks.judging.public_data_sets import page, read_index
from judges import embedded

ROOT = Path(__file__).parents[3]
INDEX = """\
## dev

## Where they come from

| dataset | licence | domain | repository | notes |
|---|---|---|---|---|
| WiCE claims, full page | ODC-BY | web pages | some/wice | DEV |

## Published figures to stand beside

| model | size | WiCE | Other |
|---|---|---|---|
| Peer-L | 0.4B | 70.1 | 80.2 |
"""


@pytest.fixture(scope="module")
def report() -> dict[str, dict[str, dict[str, float]]]:
    return json.loads((embedded.FOLDER / "report.json").read_text("utf-8"))


def test_page_matches_the_report_of_the_shipped_model(
    report: dict[str, dict[str, dict[str, float]]],
) -> None:
    """If this fails, the model has changed: run ``python -m benchmarks.judging.public_data_sets`` again."""
    text = (ROOT / "docs" / "judging" / "accuracy.md").read_text("utf-8")
    for name, figures in report["judge"].items():
        assert f"| {name} | {figures['rows']} | {figures['balanced_accuracy']:.3f}" in text


def test_other_judges_are_listed_with_the_shared_set(
    report: dict[str, dict[str, dict[str, float]]], tmp_path: Path
) -> None:
    (tmp_path / "INDEX.md").write_text(INDEX, "utf-8")
    text = page(report, report, read_index(tmp_path / "INDEX.md"), None)
    ours = 100 * report["judge"]["WiCE"]["balanced_accuracy"]
    assert "| Peer-L | 0.4B | 70.1 | 80.2 |\n" in text
    assert f"| this judge, WiCE development split | 0.02B | ({ours:.1f}) | – |\n" in text
    assert "| some/wice | ODC-BY |\n" in text


def test_page_admits_where_wording_alone_does_better(
    report: dict[str, dict[str, dict[str, float]]], tmp_path: Path
) -> None:
    (tmp_path / "INDEX.md").write_text(INDEX, "utf-8")
    figures = {"rows": 9, "balanced_accuracy": 0.7, "roc_auc": 0.8, "f1_unsupported": 0.5, "false_block": 0.0}
    sets = {"judge": {"one": figures, "two": figures}}
    above = {"one": {**figures, "balanced_accuracy": 0.6, "roc_auc": 0.7}, "two": {**figures, "balanced_accuracy": 0.6}}
    text = page({**report, **sets, "wording_alone": above}, report, read_index(tmp_path / "INDEX.md"), None)
    assert "in balanced accuracy on every set, and in ROC-AUC on every set but two (0.800 against 0.800)." in text


def test_missing_tables_are_reported(tmp_path: Path) -> None:
    (tmp_path / "INDEX.md").write_text("## Nothing\n", "utf-8")
    with pytest.raises(ValueError, match="no table of origins"):
        read_index(tmp_path / "INDEX.md")
