import pytest

from app.dashboard.overview.changes import change, change_in_points


@pytest.mark.parametrize(
    ("now", "before", "words"),
    [
        (112, 100, "12% more than the day before"),
        (92, 100, "8% less than the day before"),
        (100.1, 100, "the same as the day before"),
        (450, 100, "4.5 times as much as the day before"),
        (5, 0, "none the day before"),
        (5, None, ""),
        (0, 0, "none the day before either"),
        (0, 4, "100% less than the day before"),
        (None, 4, ""),
    ],
)
def test_amount_is_compared(now: float | None, before: float | None, words: str) -> None:
    assert change(now, before, "the day before") == words


@pytest.mark.parametrize(
    ("now", "before", "words"),
    [
        (0.043, 0.031, "up 1.2 points from 3.1% the day before"),
        (0.031, 0.043, "down 1.2 points from 4.3% the day before"),
        (0.031, 0.031, "the same as the day before"),
        (0.031, None, ""),
        (None, 0.031, ""),
    ],
)
def test_ratio_is_compared_in_points(now: float | None, before: float | None, words: str) -> None:
    assert change_in_points(now, before, "the day before") == words
