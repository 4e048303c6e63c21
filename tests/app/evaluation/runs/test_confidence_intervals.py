"""Intervals, compared with textbook values, and edge cases."""

import pytest

from app.evaluation.runs.confidence_intervals import BOOTSTRAP, WILSON, Estimate, difference, mean, ratio, share


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(8, 10, 0.4902, 0.9433), (10, 10, 0.7225, 1.0), (0, 10, 0.0, 0.2775), (81, 263, 0.2553, 0.3662)],
)
def test_wilson(hits: int, of: int, low: float, high: float) -> None:
    """81 of 263 is the example of Newcombe (1998)."""
    found = share(hits, of)
    assert found.value == hits / of
    assert found.low == pytest.approx(low, abs=5e-5)
    assert found.high == pytest.approx(high, abs=5e-5)
    assert found.method == WILSON


def test_bootstrap_of_many_cases_is_deterministic_and_near_the_normal_interval() -> None:
    values = [0.0, 0.5, 1.0, 1.0] * 100
    found = mean(values)
    # standard error: the standard deviation 0.41458 over the root of 400
    assert found.value == 0.625
    assert found.low == pytest.approx(0.625 - 1.96 * 0.020729, abs=0.005)
    assert found.high == pytest.approx(0.625 + 1.96 * 0.020729, abs=0.005)
    assert found.method == BOOTSTRAP
    assert mean(values) == found


def test_claims_of_one_case_are_not_independent() -> None:
    """100 claims in 10 cases, with the same verdict within each case: as uncertain as 10 cases, not as 100 claims."""
    clustered = ratio([10, 0] * 5, [10] * 10)
    spread = share(50, 100)
    assert clustered.value == spread.value == 0.5
    assert clustered.low is not None
    assert spread.low is not None
    assert clustered.low < 0.25 < 0.4 < spread.low


def test_equal_cases_still_have_an_interval() -> None:
    assert mean([1.0] * 10) == share(10, 10)
    assert mean([0.0] * 10) == share(0, 10)
    found = ratio([3, 2], [3, 2])
    assert (found.value, found.method) == (1.0, WILSON)
    assert found.low is not None
    assert found.low < 0.5


def test_zero_and_one_case_have_defined_intervals() -> None:
    nothing = Estimate(value=None)
    assert [share(0, 0), mean([]), ratio([], []), ratio([0], [0]), difference([])] == [nothing] * 5
    assert mean([0.5]) == Estimate(value=0.5)


def test_paired_difference_ignores_what_the_cases_share() -> None:
    found = difference([(0.1, 0.2), (0.5, 0.6), (0.9, 1.0)])
    assert found.value == pytest.approx(0.1)
    assert found.low == pytest.approx(0.1)
