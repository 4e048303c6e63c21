"""``groundlane eval`` as a shell runs it, with the embedded judge."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli.evaluation import exit_code
from app.evaluation.judging.evaluator import Evaluator
from tests.support.command_line import Run, command


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ignores the settings in the environment, ``.env``, and the user's cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return command(monkeypatch, capsys, "eval")


def files(folder: str) -> dict[str, Any]:
    return {file.name: json.loads(file.read_text("utf-8")) for file in sorted(Path(folder, "cases").iterdir())}


@pytest.mark.slow
def test_sample_is_judged_once_and_then_reproduced_from_the_cache(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sample = run("sample")
    assert sample.code == 0
    Path("sample.jsonl").write_text(sample.out, "utf-8")
    assert len(sample.out.splitlines()) == 21
    first = run("run", "grounding", "--input", "sample.jsonl", "--output-dir", "a", "--json")
    assert (first.code, first.err) == (0, "")
    assert (tmp_path / "home" / "groundlane" / "evaluation.sqlite3").is_file()

    async def unasked(*_: object) -> None:
        raise AssertionError("the judge was asked")

    monkeypatch.setattr(Evaluator, "_judge", unasked)
    second = run("run", "grounding", "--input", "sample.jsonl", "--output-dir", "b", "--json")
    before, after = json.loads(first.out), json.loads(second.out)
    assert (before["cached_cases"], after["cached_cases"]) == (0, 20)
    assert before | {"cached_cases": 0} == after | {"cached_cases": 0}
    assert before["cases"] | {"errors": 0} == {
        "total": 21,
        "scored": 19,
        "no_context": 1,
        "no_claims": 1,
        "disabled": 0,
        "errors": 0,
    }
    assert uncached(files("a")) == uncached(files("b"))
    first_bytes = whole("a")
    for folder in ("c", "a"):  # from the cache once more, and into the folder that is complete
        assert run("run", "grounding", "--input", "sample.jsonl", "--output-dir", folder, "--json").code == 0
    assert (whole("c"), whole("a")) == (whole("b"), first_bytes)
    tower = files("a")["eiffel-tower-moved.json"]["metrics"][0]
    assert tower["result"][0]["verdict"] == "ACCEPTED"
    assert tower["result"][1]["verdict"] == "REJECTED"

    compared = run("compare", "a", "b", "--fail-on-regression")
    assert compared.code == 0
    assert "0 no longer accepted, 0 now accepted" in compared.out

    gate = run("run", "grounding", "-i", "sample.jsonl", "-o", "b", "--fail-under", "1")
    assert gate.code == 1
    assert gate.err == f"Failed: the score {after['score']['value']:.3f} is below 1.\n"
    assert run("run", "grounding", "-i", "sample.jsonl", "-o", "b", "--fail-under", "0.1").code == 0

    strict = ("--entailment-threshold", "1", "--no-cache", "--limit", "1")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert run("run", "grounding", "-i", "sample.jsonl", "-o", "d", *strict).code == 0
    flipped = run("compare", "a", "d", "--fail-on-regression")
    assert flipped.code == 1
    assert "- eiffel-tower-basic: supported → unverifiable: The Eiffel Tower is a wrought-iron" in flipped.out


def whole(folder: str) -> dict[str, bytes]:
    """The files of all cases, to the last byte."""
    return {file.name: file.read_bytes() for file in sorted(Path(folder).glob("cases/*"))}


def uncached(found: dict[str, Any]) -> dict[str, Any]:
    for file in found.values():
        for metric in file["metrics"]:
            for entry in metric["result"]:
                entry.get("item", {}).pop("cached", None)
    return found


@pytest.mark.slow
def test_estimate_shows_the_cost(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_LLM_JUDGE_MODEL", "gpt-4o-mini")
    Path("a.jsonl").write_text('{"output": "It is red.", "context": "It was blue."}\n')
    found = run("estimate", "grounding", "--input", "a.jsonl", "--judge", "llm", "--json")
    assert found.code == 0
    told = json.loads(found.out)
    assert (told["cases"], told["claims"], told["calls"], told["output_tokens"]) == (1, 1, 1, 150)
    assert told["usd"] == pytest.approx((told["input_tokens"] * 0.15 + 150 * 0.6) / 1e6)
    shown = run("estimate", "grounding", "--input", "a.jsonl", "--judge", "llm").out
    assert "about 1, 150 tokens per answer" in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "grounding", "-i", "no.jsonl", "-o", "out"), "no.jsonl: No such file or directory"),
        (("run", "grounding", "-i", "bad.jsonl", "-o", "out"), "bad.jsonl, line 2, output: expected a string, got 3."),
        (("estimate", "grounding", "-i", "bad.jsonl"), "bad.jsonl, line 2, output: expected a string, got 3."),
        (("run", "grounding", "-i", "good.jsonl", "-o", "bad.jsonl"), "bad.jsonl: "),
        (
            ("run", "grounding", "-i", "good.jsonl", "-o", "out", "--judge", "llm"),
            "GROUNDLANE_LLM_JUDGE_MODEL: must be set",
        ),
        (("compare", "no", "neither"), "no: no run in this folder"),
    ],
)
def test_errors_are_one_line_that_names_the_cause(run: Run, arguments: Sequence[str], told: str) -> None:
    Path("good.jsonl").write_text('{"output": "a"}\n')
    Path("bad.jsonl").write_text('{"output": "a"}\n{"output": 3}\n')
    result = run(*arguments)
    assert result.code == 2
    assert result.err.startswith(f"Error: {told}")
    assert result.err.count("\n") == 1
    assert not Path("out").exists()


def test_unusable_cache_is_reported(run: Run) -> None:
    Path("good.jsonl").write_text('{"output": "a", "context": "b"}\n')
    Path("cache").write_text("this is no database, and it is long enough to be seen as none " * 20)
    result = run("run", "grounding", "-i", "good.jsonl", "-o", "out", "--cache", "cache")
    assert result.code == 1
    reason = "cannot use the verdict cache: cache: file is not a database"
    assert result.err == f"Error: {reason}. To run without a cache, use --no-cache.\n"


def test_fail_under_without_a_score_fails(run: Run) -> None:
    Path("none.jsonl").write_text('{"output": "a"}\n')
    result = run("run", "grounding", "-i", "none.jsonl", "-o", "out", "--no-cache", "--fail-under", "0")
    assert (result.code, result.err) == (1, "Failed: no case has a score.\n")


@pytest.mark.parametrize(
    ("errors", "max_errors", "fail_under", "code"),
    [
        (0, 0.0, None, 0),
        (1, 0.0, None, 1),
        (1, 0.1, None, 0),
        (2, 0.1, None, 1),
        (1, 0.1, 0.95, 1),
        (10, 1.0, None, 0),
    ],
)
def test_run_fails_if_a_larger_share_of_its_cases_does(
    errors: int, max_errors: float, fail_under: float | None, code: int
) -> None:
    summary: Any = SimpleNamespace(errors=errors, cases={"total": 10}, score=SimpleNamespace(value=0.9))
    assert exit_code(summary, fail_under, max_errors) == code
