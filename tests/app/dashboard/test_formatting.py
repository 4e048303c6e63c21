"""Formatting of numbers."""

import pytest

from app.dashboard.formatting import duration, many, percent, whole_percent


def test_a_noun_follows_its_number() -> None:
    assert [many(number, "request") for number in (0, 1, 2_000)] == ["0 requests", "1 request", "2,000 requests"]
    assert many(2, "policy", "policies") == "2 policies"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (0.01, "<0.1 ms"),
        (0.05, "0.1 ms"),
        (9.94, "9.9 ms"),
        (120, "120 ms"),
        (1_250, "1.25 s"),
        (125_000, "2 min 5 s"),
    ],
)
def test_a_duration_has_a_unit_that_fits_and_is_never_zero_by_rounding(ms: float | None, text: str) -> None:
    assert duration(ms) == text


def test_fractions_are_percentages() -> None:
    assert [percent(value) for value in (None, 0.1234, 1)] == ["–", "12.3%", "100.0%"]
    assert [whole_percent(value) for value in (None, 0.126)] == ["–", "13%"]
