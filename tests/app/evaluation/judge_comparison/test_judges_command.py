"""``groundlane eval judges`` as a shell runs it, with the embedded judge and a service."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.command_line import Result, Run, command
from tests.support.judging.pair_services import Vectara, serving

SAID = "A cat is sleeping on the red sofa."
CASES = [
    {"output": SAID, "context": SAID, "label": "supported"},
    {"output": "A cat is sleeping.", "context": SAID, "label": True},
    {"output": "No cat is sleeping on the red sofa.", "context": SAID, "label": "contradicted"},
    {"output": "The garden has seven apple trees.", "context": SAID, "label": 0},
    {"output": "Hello!", "context": SAID, "label": "supported"},
]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))

    compare = command(monkeypatch, capsys, "eval", "judges", "-i", "cases.jsonl")

    def call(*arguments: str, cases: Any = CASES) -> Result:
        Path("cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases), "utf-8")
        return compare(*arguments)

    return call


def test_judges_are_compared_side_by_side(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_VECTARA_API_KEY", "the-key")
    server = Vectara()
    with serving(server) as url:
        service = f"preset:vectara?price=0.01&url={url}"
        specs = ["embedded", service, f"embedded then {service} if uncertain 0..1"]
        options = [option for spec in specs for option in ("--judge", spec)]
        result = run(*options, "--json")
        shown = run(*options)
    assert (result.code, shown.code) == (0, 0)
    found = json.loads(result.out)
    assert (found["supported"], found["unsupported"]) == (3, 2)
    embedded, vectara, cascade = found["judges"]
    assert [line["spec"] for line in found["judges"]] == specs
    assert vectara["judge"] == "preset:vectara"
    for line in (embedded, vectara, cascade):
        assert (line["cases"], line["without_claims"], line["failed"], line["fault"]) == (4, 1, 0, None)
        for figure in ("balanced_accuracy", "roc_auc", "false_blocks", "missed"):
            assert line[figure]["value"] is not None
    assert vectara["balanced_accuracy"]["value"] == 1.0
    assert vectara["false_blocks"]["method"] == "Wilson score interval"
    assert vectara["cost"]["usd"] > 0
    assert embedded["cost"]["usd"] == 0
    lines = shown.out.splitlines()
    assert lines[0] == "3 supported and 2 unsupported cases"
    assert lines[2].split()[:3] == ["JUDGE", "BALANCED", "ACCURACY"]
    assert [line.split("  ")[0] for line in lines[3:]] == specs


def test_judge_without_a_key_is_named_and_the_others_continue(run: Run) -> None:
    specs = ["preset:vectara", "embedded then preset:vectara if uncertain", "embedded"]
    result = run(*(option for spec in specs for option in ("--judge", spec)), "--json")
    assert result.code == 1
    *incomplete, embedded = json.loads(result.out)["judges"]
    for missing in incomplete:
        assert "no API key; set GROUNDLANE_VECTARA_API_KEY" in missing["fault"]
        assert missing["balanced_accuracy"]["value"] is None
    assert (embedded["fault"], embedded["cases"]) == (None, 4)


def test_cases_not_judged_by_a_service_are_counted_and_not_scored(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_VECTARA_API_KEY", "the-key")
    with serving(Vectara(script=[httpx.Response(400)])) as url:
        result = run("--judge", f"preset:vectara?url={url}", "--json", "--limit", "3")
    assert result.code == 1
    (line,) = json.loads(result.out)["judges"]
    assert (line["cases"], line["failed"]) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--judge", "embeded"], "Error: --judge: judge 'embeded': expected 'embedded', "),
        (["--judge", "none"], "Error: --judge: can't be 'none'"),
        (["--judge", "preset:azure-groundedness"], "needs the option 'endpoint'"),
        (["--judge", "embedded then preset:vectara"], "expected '<judge> then <judge> if uncertain'"),
    ],
)
def test_invalid_judge_error_says_what_is_expected(run: Run, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("maybe", "case 'case-1' has the unknown label 'maybe'; expected 'supported' or 'unsupported'"),
        (None, "case 'case-1' has no label; expected 'supported' or 'unsupported'"),
    ],
)
def test_missing_or_unknown_label_names_the_case(run: Run, label: Any, message: str) -> None:
    result = run("--judge", "embedded", cases=[{"output": SAID, "context": SAID, "label": label}])
    assert result.code == 2
    assert message in result.err
