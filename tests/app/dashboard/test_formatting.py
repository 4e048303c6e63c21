"""Formatting of numbers."""

from decimal import Decimal

import pytest

from app.dashboard.formatting import code_spans, compact, duration, many, money, percent, whole_percent


def test_noun_follows_its_number() -> None:
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
def test_duration_has_a_unit_that_fits_and_is_never_zero_by_rounding(ms: float | None, text: str) -> None:
    assert duration(ms) == text


def test_large_numbers_are_short_on_an_axis() -> None:
    values = (None, 0, 99_999, 150_000, 1_000_000, 45_000_000, 2_500_000_000, 3e15)
    assert [compact(value) for value in values] == ["–", "0", "99,999", "150k", "1M", "45M", "2.5B", "3,000T"]


def test_amounts_of_money() -> None:
    values = (None, 0, 0.00001, 0.0042, 0.12, 12.3, 1234.5, Decimal("0.5"))
    assert [money(value) for value in values] == [
        "–", "$0", "<$0.0001", "$0.0042", "$0.12", "$12.30", "$1,234", "$0.50",
    ]  # fmt: skip


def test_fractions_are_percentages() -> None:
    assert [percent(value) for value in (None, 0.1234, 1)] == ["–", "12.3%", "100.0%"]
    assert [whole_percent(value) for value in (None, 0.126)] == ["–", "13%"]


def test_text_in_backticks_is_code_and_the_rest_is_escaped() -> None:
    assert code_spans("set `a<b` & `c`.") == "set <code>a&lt;b</code> &amp; <code>c</code>."
    assert code_spans("<b>") == "&lt;b&gt;"
