"""Answers of LLMs, valid and invalid."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.llm.response_parsing import (
    read_claim_verdict,
    read_claims,
    read_scale,
    read_score,
    read_statement_verdicts,
    read_yes_no,
)
from judges.types import Label


@pytest.mark.parametrize(
    ("text", "label", "confidence"),
    [
        ('{"verdict": "supported", "confidence": 0.9}', Label.SUPPORTED, 0.9),
        ('Thinking aloud.\n```json\n{"verdict": "Contradicted", "confidence": "85%"}\n```', Label.CONTRADICTED, 0.85),
        ('{"verdict": "NOT ADDRESSED", "confidence": 70}', Label.UNVERIFIABLE, 0.7),
        ('{"verdict": "supported"}', Label.SUPPORTED, 0.75),
        ('{"verdict": "supported", "confidence": 0.2}', Label.UNVERIFIABLE, 0.5),
        ('{"verdict": "supported", "confidence": true}', Label.SUPPORTED, 0.75),
        ('{"a": {"verdict": "x"}} {"verdict": "entailed", "confidence": 1}', Label.SUPPORTED, 1.0),
        (
            '{"verdict": "supported", "confidence": 0.9} {"verdict": "supported", "confidence": 0.9}',
            Label.SUPPORTED,
            0.9,
        ),
    ],
)
def test_verdict_is_parsed(text: str, label: Label, confidence: float) -> None:
    opinion = read_claim_verdict(text, sources=3)
    assert opinion is not None
    assert (opinion.label, opinion.confidence) == (label, pytest.approx(confidence))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "supported",
        '{"verdict": "maybe"}',
        '{"verdict": 1}',
        '{"verdict": "supported"',
        '{"verdict": "supported"} but on reflection {"verdict": "contradicted"}',
        "[]",
        "{" * 5_000,
        '{"verdict": ' * 5_000,
    ],
)
def test_missing_or_double_verdict_is_rejected(text: str) -> None:
    assert read_claim_verdict(text, sources=3) is None


def test_sources_must_exist_and_only_contradictions_have_corrections() -> None:
    answer = {"verdict": "contradicted", "confidence": 1, "sources": [2, 9, 0, "1", 2], "correction": " It is\n40. "}
    opinion = read_claim_verdict(json.dumps(answer), sources=3)
    assert opinion is not None
    assert (opinion.passages, opinion.correction) == ((1, 0), "It is 40.")
    supported = read_claim_verdict(json.dumps({**answer, "verdict": "supported"}), sources=3)
    assert supported is not None
    assert supported.correction is None


@pytest.mark.parametrize("correction", [None, "", "null", "N/A", 7, "x" * 3_000])
def test_malformed_correction_is_ignored(correction: Any) -> None:
    answer = {"verdict": "contradicted", "confidence": 1, "correction": correction}
    opinion = read_claim_verdict(json.dumps(answer), sources=1)
    assert opinion is not None
    assert opinion.correction is None


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"score": 0.4}', 0.4),
        ('{"score": "0.4"}', 0.4),
        ("0.7", 0.7),
        ("Score: 1.0", 1.0),
        ('{"score": 7}', None),
        ('{"score": -1}', None),
        ('{"score": NaN}', None),
        ("8/10", None),
        ("1.7", None),
        ("good", None),
    ],
)
def test_score_is_parsed_or_none(text: str, score: float | None) -> None:
    found = read_score(text)
    assert (None if found is None else found[0]) == score


@pytest.mark.parametrize(
    ("text", "score"),
    [('{"score": 5}', 1.0), ('{"score": 2}', 0.25), ("3", 0.5), ('{"score": 0}', None), ('{"score": 2.5}', None)],
)
def test_five_point_score_is_parsed_or_none(text: str, score: float | None) -> None:
    found = read_scale(text)
    assert (None if found is None else found[0]) == score


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"grounded": true}', 1.0),
        ('{"grounded": "No"}', 0.0),
        ("Yes.", 1.0),
        ("no", 0.0),
        ("perhaps", None),
        ('{"grounded": 1}', None),
    ],
)
def test_yes_and_no_are_parsed_or_none(text: str, score: float | None) -> None:
    found = read_yes_no(text)
    assert (None if found is None else found[0]) == score


def test_numbered_verdicts_are_parsed_and_ambiguous_ones_dropped() -> None:
    entries = [
        {"number": 1, "verdict": "supported"},
        {"number": 2, "verdict": "supported"},
        {"number": 2, "verdict": "contradicted"},
        {"number": "3", "verdict": "not_a_claim"},
        {"verdict": "supported"},
        "noise",
    ]
    assert read_statement_verdicts(json.dumps({"verdicts": entries})) == {1: Label.SUPPORTED, 3: Label.NOT_A_CLAIM}
    assert read_statement_verdicts('{"verdicts": "supported"}') is None


def test_claims_are_a_list_of_strings() -> None:
    assert read_claims('{"claims": ["a", "b"]}') == ["a", "b"]
    assert read_claims('{"claims": [1]}') is None
    assert read_claims("a, b") is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.integers() | st.just(10**400) | st.just("9" * 400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.text() | VALUES.map(json.dumps), VALUES)
def test_any_model_output_can_be_parsed(text: str, value: Any) -> None:
    """Neither an answer of any form, nor a valid form with any value in any of its fields."""
    formed = {
        "score": value,
        "grounded": value,
        "claims": value,
        "verdicts": [value, {"number": value, "verdict": "supported"}, {"number": 1, "verdict": value}],
        "verdict": "contradicted",
        **{name: value for name in ("confidence", "sources", "correction", "reasoning")},
    }
    for said in (text, json.dumps(formed), json.dumps({**formed, "verdict": value, "sources": [value, 1]})):
        for read in (read_score, read_scale, read_yes_no, read_statement_verdicts, read_claims):
            read(said)
        read_claim_verdict(said, sources=2)
