"""Figures computed by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.training.evaluation.metrics import (
    Figures,
    calibration_error,
    calibration_table,
    macro,
    measure,
    reliability,
    roc_auc,
    table,
)


def flags(*values: int) -> np.ndarray:
    return np.array(values, dtype=bool)


def test_figures_of_six_claims() -> None:
    """Four are supported, of which three are found and one is blocked; two are not, of which one is found."""
    found = measure(
        np.array([0.9, 0.8, 0.7, 0.1, 0.75, 0.2]),
        flags(1, 1, 1, 1, 0, 0),
        threshold=0.7,
        blocked=flags(0, 0, 0, 1, 0, 1),
    )
    assert found.rows == 6
    assert found.balanced_accuracy == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert found.false_block == pytest.approx(1 / 4)
    assert found.f1_unsupported == pytest.approx(2 * (1 / 2) * (1 / 2) / (1 / 2 + 1 / 2))
    assert found.roc_auc == pytest.approx((2 + 2 + 1 + 0) / 8)


def test_tie_counts_half() -> None:
    assert roc_auc(np.array([0.5, 0.5]), flags(1, 0)) == 0.5
    assert roc_auc(np.array([0.2, 0.5, 0.5, 0.9]), flags(0, 1, 0, 1)) == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert math.isnan(roc_auc(np.array([0.2]), flags(1)))


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.3, 0.4]), st.booleans()), min_size=2, max_size=30))
def test_area_is_the_share_of_pairs_in_the_right_order(rows: list[tuple[float, bool]]) -> None:
    positives = [score for score, positive in rows if positive]
    negatives = [score for score, positive in rows if not positive]
    if not positives or not negatives:
        return
    pairs = [(one > other) + 0.5 * (one == other) for one in positives for other in negatives]
    scores, truth = zip(*rows, strict=True)
    assert roc_auc(np.array(scores), np.array(truth)) == pytest.approx(sum(pairs) / len(pairs))


def test_every_data_set_has_the_same_weight() -> None:
    one, other = (
        Figures(rows=rows, balanced_accuracy=value, roc_auc=value, f1_unsupported=value, false_block=value)
        for rows, value in ((10, 0.5), (1000, 0.9))
    )
    assert macro({"a": one, "b": other}, "roc_auc") == pytest.approx(0.7)
    assert "| **macro** | 1010 | 0.700 |" in table({"a": one, "b": other})


def test_calibration_error_of_four_claims() -> None:
    """Two at 0.25, of which half are supported, and one each at 0.75 and 1, which are."""
    bins = reliability(np.array([0.25, 0.25, 0.75, 1.0]), flags(1, 0, 1, 1), bins=2)
    assert [(one.low, one.rows, one.score, one.supported) for one in bins] == [(0, 2, 0.25, 0.5), (0.5, 2, 0.875, 1)]
    assert calibration_error(bins) == pytest.approx((2 * 0.25 + 2 * 0.125) / 4)
    assert calibration_table(bins).endswith("expected calibration error 0.188\n")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(1, 20))
def test_every_claim_is_in_one_bin(scores: list[float], bins: int) -> None:
    found = reliability(np.array(scores), flags(*[1] * len(scores)), bins=bins)
    assert sum(one.rows for one in found) == len(scores)
    assert calibration_error(found) == pytest.approx(1 - np.mean(scores))
