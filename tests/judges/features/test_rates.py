"""Tests of rates, whose periods are written in full or abbreviated."""

import pytest

from judges.features.claim_comparison import compute
from judges.features.parsed_text import prepare

OTHERS = "Premium users get 1000 requests per minute. "
PERIODS = [("min", "minute"), ("h", "hour"), ("hr", "hour"), ("s", "second"), ("sec", "second"), ("day", "day")]


@pytest.mark.parametrize(("short", "full"), PERIODS)
def test_different_number_differs_with_or_without_abbreviation(short: str, full: str) -> None:
    short_form, full_form = f"500 req/{short}", f"900 requests per {full}"
    evidence = prepare(f"{OTHERS}The free tier is limited to {short_form}.")
    assert compute(evidence, prepare(f"The free tier is limited to {full_form}.")).quantity_differs == 1.0
    evidence = prepare(f"{OTHERS}The free tier is limited to {full_form}.")
    assert compute(evidence, prepare(f"The free tier is limited to {short_form}.")).quantity_differs == 1.0


@pytest.mark.parametrize(("short", "full"), PERIODS)
def test_same_rate_agrees_with_or_without_abbreviation(short: str, full: str) -> None:
    evidence = prepare(f"{OTHERS}The free tier is limited to 500 req/{short}.")
    found = compute(evidence, prepare(f"The free tier is limited to 500 requests per {full}."))
    assert found.quantity_differs == 0.0
    assert found.contained == 1.0


@pytest.mark.parametrize("period", ["hour", "second", "day"])
def test_rate_over_another_period_is_not_contained(period: str) -> None:
    evidence = prepare(f"{OTHERS}The free tier is limited to 500 req/min.")
    claim = prepare(f"The free tier is limited to 500 requests per {period}.")
    assert compute(evidence, claim).contained == 0.0


def test_period_far_from_a_rate_is_an_ordinary_word() -> None:
    sentence = prepare(
        "It takes 60 requests per minute, and no more than that for those who pay a min. fee."
    ).sentences[0]
    assert sentence.keys.count("minut") == 1
