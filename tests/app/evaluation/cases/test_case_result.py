"""Result files: scores on both scales, ids, and lossless conversion to JSON and back."""

from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.evaluation.cases.case import Case, Scoring, ScoringMode
from app.evaluation.cases.case_result import (
    CaseResult,
    Cost,
    JudgedClaim,
    JudgedOutput,
    Passage,
    UnjudgedRange,
    claim_ids,
    from_json,
    raw_score,
    to_json,
)
from judges.types import Label

SUPPORT = 0.7


def claim(label: Label, entailed: float = 0.0, text: str = "It is so.") -> JudgedClaim:
    return JudgedClaim(
        text=text,
        context="",
        sentence=0,
        start=0,
        end=len(text),
        tokens=4,
        label=label,
        entailed=entailed,
        contradicted=0.0,
        confidence=0.9,
    )


def result(*claims: JudgedClaim, mode: ScoringMode = ScoringMode.BINARY, reasoning: bool = False) -> CaseResult:
    case = Case(case_id="a", output="…", scoring=Scoring(mode=mode, include_reasoning=reasoning))
    return CaseResult(case=case, key="k", judged=JudgedOutput(judge="j", summary="s", support=SUPPORT, claims=claims))


@pytest.mark.parametrize(
    ("label", "entailed", "raw"),
    [
        (Label.SUPPORTED, 0.99, 5),
        (Label.SUPPORTED, 0.85, 5),
        (Label.SUPPORTED, 0.84, 4),
        (Label.SUPPORTED, 0.70, 4),
        (Label.UNVERIFIABLE, 0.69, 3),
        (Label.UNVERIFIABLE, 0.47, 3),
        (Label.UNVERIFIABLE, 0.46, 2),
        (Label.UNVERIFIABLE, 0.24, 2),
        (Label.UNVERIFIABLE, 0.23, 1),
        (Label.UNVERIFIABLE, 0.0, 1),
        (Label.CONTRADICTED, 0.6, 1),
    ],
)
def test_scale_from_one_to_five(label: Label, entailed: float, raw: int) -> None:
    assert raw_score(claim(label, entailed), ScoringMode.SCALE, SUPPORT) == raw


def test_one_supported_and_one_contradicted_claim_score_a_half_on_either_scale() -> None:
    both = (claim(Label.SUPPORTED, 0.99), claim(Label.CONTRADICTED))
    assert result(*both).score == 0.5
    assert result(*both, mode=ScoringMode.SCALE).score == 0.5
    assert result(claim(Label.SUPPORTED, 0.75), mode=ScoringMode.SCALE).score == 0.75


def test_file_has_the_fields_and_verdicts_of_the_metric() -> None:
    file = to_json(result(claim(Label.SUPPORTED, 0.9), claim(Label.UNVERIFIABLE, 0.1), reasoning=True))
    (metric,) = file["metrics"]
    assert {name: metric[name] for name in ("name", "category", "score", "error")} == {
        "name": "grounding",
        "category": "answer",
        "score": 0.5,
        "error": None,
    }
    first, second, last = metric["result"]
    assert set(first["item"]) == {"id", "text", "tokens", "confidence", "cached"}
    assert first["item"]["tokens"] == 4.0
    assert [first["verdict"], second["verdict"]] == ["ACCEPTED", "REJECTED"]
    assert [first["raw_score"], second["raw_score"]] == [1, 0]
    assert first["source_chunk_index"] == 0
    assert first["extraction_failed"] is False
    assert list(last) == ["reasoning"]
    assert file["cost"] == {"cost": 0.0, "input_tokens": None, "output_tokens": None}


def test_skipped_case_has_no_metrics_and_costs_nothing() -> None:
    file = to_json(CaseResult(case=Case(case_id="a", output=""), skipped="no_context"))
    assert file["metrics"] == []
    assert file["cost"] == {"cost": 0.0, "input_tokens": None, "output_tokens": None}


def test_failed_case_has_an_error_and_no_score() -> None:
    failed = replace(result(claim(Label.SUPPORTED, 0.9)), error="1 of 2 claims could not be judged: timeout")
    (metric,) = to_json(failed)["metrics"]
    assert (metric["score"], metric["error"]) == (None, "1 of 2 claims could not be judged: timeout")


def test_equal_cases_have_the_same_id_and_repetitions_another() -> None:
    first, second, third = claim_ids(
        [claim(Label.SUPPORTED), claim(Label.SUPPORTED), claim(Label.SUPPORTED, text="No.")]
    )
    assert claim_ids([claim(Label.CONTRADICTED)]) == [first]
    assert len({first, second, third}) == 3
    assert len(first) == 16


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
optional = st.none() | texts
shares = st.floats(0, 1, allow_nan=False)
counts = st.integers(0, 10_000)
claims = st.builds(
    JudgedClaim,
    text=texts,
    context=texts,
    sentence=counts,
    start=counts,
    end=counts,
    tokens=counts,
    label=st.sampled_from(Label),
    entailed=shares,
    contradicted=shares,
    confidence=shares,
    escalated=st.booleans(),
    reason=optional,
    explanation=optional,
    correction=optional,
    own_score=st.none() | st.integers(0, 5),
    passage=st.none()
    | st.builds(Passage, document_id=texts, document_index=counts, content=texts, start=counts, end=counts),
)
judged = st.builds(
    JudgedOutput,
    judge=texts,
    summary=texts,
    support=shares,
    claims=st.lists(claims, min_size=1, max_size=3).map(tuple),
    unjudged=st.lists(st.builds(UnjudgedRange, kind=optional, start=counts, end=counts), max_size=2).map(tuple),
    reasoning=optional,
    cost=st.builds(Cost, usd=st.none() | shares, input_tokens=st.none() | counts, output_tokens=st.none() | counts),
)
cases = st.builds(
    Case,
    case_id=texts,
    output=texts,
    input=optional,
    reference=optional,
    documents=st.just(()),
    scoring=st.builds(Scoring, mode=st.sampled_from(ScoringMode), include_reasoning=st.booleans()),
)


@settings(max_examples=40)
@given(
    st.builds(CaseResult, case=cases, key=texts, judged=judged, cached=st.booleans(), error=optional, skipped=st.none())
)
def test_results_survive_json(made: CaseResult) -> None:
    again = from_json(orjson.loads(orjson.dumps(to_json(made))))
    assert again == made
    assert again.score == made.score


def test_file_of_an_earlier_release_has_no_unjudged_parts_and_its_cached_verdicts_are_not_used() -> None:
    file = to_json(result(claim(Label.SUPPORTED)))
    del file["unjudged"]
    read = from_json(file).judged
    assert read is not None
    assert read.unjudged == ()
    cached = orjson.loads(orjson.dumps(read))
    del cached["unjudged"]
    with pytest.raises(KeyError):
        JudgedOutput.of(cached)


@settings(max_examples=40)
@given(judged)
def test_cached_verdicts_survive_json(made: JudgedOutput) -> None:
    assert JudgedOutput.of(orjson.loads(orjson.dumps(made))) == made
