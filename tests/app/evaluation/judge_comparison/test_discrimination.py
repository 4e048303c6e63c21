import random
from itertools import product

import pytest

from app.evaluation.judge_comparison.discrimination import STRATIFIED, WILSON_MEAN, balanced_accuracy, roc_auc
from app.evaluation.runs.confidence_intervals import share


def sample(count: int = 400, seed: int = 7) -> tuple[list[bool], list[float]]:
    generator = random.Random(seed)
    labels = [generator.random() < 0.3 for _ in range(count)]
    return labels, [round(generator.gauss(0.7 if label else 0.4, 0.2), 2) for label in labels]


def test_balanced_accuracy_is_the_mean_of_both_rates_within_its_interval() -> None:
    labels, scores = sample()
    decisions = [score > 0.55 for score in scores]
    found = balanced_accuracy(labels, decisions)
    rates = [
        sum(decision is kind for label, decision in zip(labels, decisions, strict=True) if label is kind)
        / labels.count(kind)
        for kind in (True, False)
    ]
    assert found.value == pytest.approx(sum(rates) / 2)
    assert found.low is not None
    assert found.high is not None
    assert found.low < sum(rates) / 2 < found.high
    assert 0.03 < found.high - found.low < 0.12
    assert found.method == STRATIFIED
    assert balanced_accuracy(labels, decisions) == found, "the seed is fixed"


def test_perfect_decisions_still_have_an_interval() -> None:
    found = balanced_accuracy([True] * 5 + [False] * 10, [True] * 5 + [False] * 10)
    five, ten = share(5, 5), share(10, 10)
    assert (found.value, found.method) == (1.0, WILSON_MEAN)
    assert found.low == pytest.approx(((five.low or 0) + (ten.low or 0)) / 2)
    assert found.high == 1.0


@pytest.mark.parametrize("labels", [[], [True], [False, False]])
def test_figures_require_both_classes(labels: list[bool]) -> None:
    assert balanced_accuracy(labels, [True] * len(labels)).value is None
    assert roc_auc(labels, [0.5] * len(labels)).value is None


def test_area_is_the_share_of_pairs_in_the_right_order() -> None:
    labels, scores = sample(60)
    good = [score for label, score in zip(labels, scores, strict=True) if label]
    bad = [score for label, score in zip(labels, scores, strict=True) if not label]
    expected = sum((one > other) + (one == other) / 2 for one, other in product(good, bad)) / (len(good) * len(bad))
    found = roc_auc(labels, scores)
    assert found.value == pytest.approx(expected)
    assert found.low is not None
    assert found.high is not None
    assert found.low < expected < found.high
    assert roc_auc(labels, scores) == found


def test_scores_that_separate_the_classes_have_no_interval() -> None:
    assert roc_auc([True, False], [0.9, 0.1]).value == 1.0
    assert roc_auc([True, False], [0.1, 0.9]).value == 0.0
    assert roc_auc([True, False], [0.9, 0.1]).low is None
    assert roc_auc([True, False, True, False], [0.5] * 4).value == 0.5
