import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.grounding.minimum_scores import ScoreCheck, ScoreMode

# Hundredths, so that means can be told exactly in integers.
HUNDREDTHS = st.integers(0, 100)


@given(scores=st.lists(HUNDREDTHS, max_size=8), threshold=HUNDREDTHS, floor=st.none() | HUNDREDTHS)
def test_modes_agree_with_exact_arithmetic(scores: list[int], threshold: int, floor: int | None) -> None:
    """The three modes agree with an exact computation in hundredths."""
    kept = [score for score in scores if floor is None or score >= floor]
    irrelevant = bool(scores) and not kept
    top = sorted(kept)[::-1][:2]
    expected: dict[ScoreMode, bool] = {
        "all": irrelevant or any(score < threshold for score in kept),
        "average": irrelevant or (bool(kept) and sum(kept) < threshold * len(kept)),
        "top_n": irrelevant or any(score < threshold for score in top),
    }
    for mode, fails in expected.items():
        check = ScoreCheck(
            threshold=threshold / 100,
            floor=None if floor is None else floor / 100,
            mode=mode,
            top_n=2,
        )
        assert (check.check([score / 100 for score in scores], complete=True) is not None) is fails


@pytest.mark.parametrize(("scores", "threshold"), [([0.7] * 3, 0.7), ([0.1, 0.3], 0.2), ([0.1] * 3, 0.1)])
def test_mean_equal_to_the_threshold_passes(scores: list[float], threshold: float) -> None:
    """In binary, three times 0.7 is less than 2.1."""
    assert ScoreCheck(threshold=threshold, mode="average").check(scores, complete=True) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0, 1))
def test_any_float_can_be_averaged(scores: list[float], threshold: float) -> None:
    low = ScoreCheck(threshold=threshold, mode="average").check(scores, complete=True)
    assert low is None or low.metadata["score"] <= max(scores) + 1e-12
