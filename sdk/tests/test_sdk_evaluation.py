"""Tests evaluation from Python with the embedded judge: the assertion, the plugin, and the sync and async functions."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from groundlane import GatewayTimeoutError
from groundlane.evaluation import EvaluationResult, Evaluator, aevaluate, check_grounded, evaluate

TRUE, FALSE, UNKNOWN = "The ferry runs daily.", "The ferry runs at 9 a.m.", "The captain paints landscapes in winter."
DOCUMENT = "The ferry runs daily. The ferry runs at 7 a.m."
CASES = [{"case_id": "one", "output": TRUE, "context": DOCUMENT}, {"case_id": "two", "output": FALSE}]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator() as opened:
        yield opened


def test_unsupported_claims_are_named(evaluator: Evaluator) -> None:
    check_grounded(evaluator, TRUE, DOCUMENT)
    check_grounded(evaluator, "Hello!", [DOCUMENT])
    check_grounded(evaluator, f"{TRUE} {FALSE}", [{"text": DOCUMENT}], score=0.5)
    with pytest.raises(AssertionError) as failure:
        check_grounded(evaluator, f"{TRUE} {FALSE} {UNKNOWN}", [DOCUMENT], score=0.9)
    message = str(failure.value)
    assert message.startswith("1 of 3 claims are supported (score 0.33, expected at least 0.90):\n  contradicted, ")
    assert f": {FALSE}\n    nearest passage, in 'doc-1': {DOCUMENT}" in message


def test_short_answer_is_judged_with_its_question(evaluator: Evaluator) -> None:
    check_grounded(evaluator, "Yes.", DOCUMENT, question="Does the ferry run daily?")
    for question in ("Does the ferry run at 9 a.m.?", " ", None):
        for output in ("Yes.", "Of course!"):
            with pytest.raises(AssertionError, match="0 of 1 claims are supported"):
                check_grounded(evaluator, output, DOCUMENT, question=question)


def test_missing_or_malformed_documents_and_a_failing_judge_fail_the_case(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AssertionError, match="the output has no documents to check it against"):
        check_grounded(evaluator, TRUE, [])
    with pytest.raises(ValueError, match=r"documents\[0\].text: missing; a document must have text"):
        check_grounded(evaluator, TRUE, [{"source": "a"}])
    failed = EvaluationResult.read({"case_id": "output", "metrics": [{"error": "1 of 1 claims could not be judged"}]})
    monkeypatch.setattr(evaluator, "evaluate", lambda _case: failed)
    with pytest.raises(AssertionError, match="could not be judged: 1 of 1 claims could not be judged"):
        check_grounded(evaluator, TRUE, [DOCUMENT])


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ("```\nmax_speed = 900 knots\n```", "code"),
        (f"{TRUE}\n\n```\nrm -rf /\n```\n", "code"),
        ("![The ferry runs at 9 a.m.](ferry.png)", "attribute"),
        ("\U000e0054\U000e0061", "invisible"),
        (f"{TRUE}\U000e0054\U000e0061", "invisible"),
        ("~~The ferry~~ runs daily.", "struck"),
    ],
)
def test_unjudged_text_fails_like_the_command(evaluator: Evaluator, output: str, kind: str) -> None:
    """``groundlane check`` fails these outputs too."""
    result = evaluator.evaluate({"output": output, "documents": [DOCUMENT]})
    assert {part.kind for part in result.unjudged} == {kind}
    with pytest.raises(AssertionError, match=f"a part of the output was not judged:\n  {kind}: "):
        check_grounded(evaluator, output, [DOCUMENT])


@pytest.mark.parametrize("output", ["", "Hello!", TRUE, f"**{TRUE}** [1]", f"- {TRUE} [doc-1]\n", f"# Ferry\n\n{TRUE}"])
def test_ordinary_output_has_no_unjudged_part(evaluator: Evaluator, output: str) -> None:
    check_grounded(evaluator, output, [DOCUMENT])


@pytest.mark.parametrize("claims", [0, 1])
def test_part_that_was_not_judged_fails_the_case(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch, claims: int
) -> None:
    output = "`rm -rf /`"
    found = {"unjudged": [{"kind": "code", "start": 1, "end": 9}, {"kind": "code"}], "case_id": "output"}
    result = EvaluationResult.read({**found, "metrics": [{"score": 1.0}] * claims})
    monkeypatch.setattr(evaluator, "evaluate", lambda _case: result)
    with pytest.raises(AssertionError) as failure:
        check_grounded(evaluator, output, [DOCUMENT], score=0.0)
    assert str(failure.value) == "a part of the output was not judged:\n  code: rm -rf /\n  code: "


def test_results_keep_the_order_of_cases_and_come_from_the_cache(tmp_path: Path) -> None:
    options: dict[str, Any] = {"cache": tmp_path / "verdicts.sqlite3", "thresholds": {"entailment": 0.6}}
    one, two = evaluate(CASES, **options)
    assert (one.case_id, one.score, one.cached, one.skipped) == ("one", 1.0, False, None)
    assert (two.case_id, two.score, two.claims, two.skipped) == ("two", None, (), "no_context")
    (claim,) = one.claims
    assert (claim.text, claim.label, claim.accepted) == (TRUE, "supported", True)
    assert (claim.span.start, claim.span.end) == (0, len(TRUE))
    assert claim.passage is not None
    assert claim.passage.document_id == "context-1"
    assert evaluate(CASES[:1], **options)[0].cached


@pytest.mark.anyio
async def test_evaluator_works_inside_a_running_event_loop() -> None:
    (result,) = await aevaluate([{"output": FALSE, "context": DOCUMENT}])
    assert (result.score, result.raw["judge"].partition("@")[0]) == (0.0, "embedded")


def test_slow_case_times_out(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "_timeout", 0.0)
    with pytest.raises(GatewayTimeoutError, match="no result within 0 s"):
        evaluator.evaluate(CASES[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [({"judge": "oracle"}, "oracle"), ({"thresholds": {"mood": 1.0}}, "thresholds: expected entailment")],
)
def test_bad_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Evaluator(**options)


def test_pytest_plugin_works_in_a_separate_project(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["groundlane.evaluation.pytest_plugin"]\n')
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
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout
    assert "0 of 1 claims are supported (score 0.00, expected at least 1.00):" in ended.stdout
