import numpy as np
import pytest

from judges.cross_encoder.label_mapping import read_label_mapping
from judges.protocols import JudgeUnavailableError

LOG = np.log


def test_three_labels_in_any_order_are_read_by_name() -> None:
    rows = np.array([[LOG(0.1), LOG(0.7), LOG(0.2)]])
    (found,) = read_label_mapping({"0": "CONTRADICTION", "1": "Entailment", "2": "neutral"}, size=3).probabilities(rows)
    assert (found.entailed, found.neutral, found.contradicted) == pytest.approx((0.7, 0.2, 0.1))
    (found,) = read_label_mapping({0: "entailment", 1: "neutral", 2: "contradiction"}).probabilities(rows)
    assert (found.entailed, found.neutral, found.contradicted) == pytest.approx((0.1, 0.7, 0.2))


def test_two_labels_have_no_contradiction() -> None:
    (found,) = read_label_mapping({"0": "not_entailment", "1": "entailment"}).probabilities(
        np.array([[LOG(0.25), LOG(0.75)]])
    )
    assert (found.entailed, found.neutral, found.contradicted) == pytest.approx((0.75, 0.25, 0.0))


@pytest.mark.parametrize("id2label", [{}, {"0": "LABEL_0"}])
def test_one_logit_is_the_log_odds_of_entailment(id2label: dict[str, str]) -> None:
    found = read_label_mapping(id2label, size=1).probabilities(np.array([0.0, LOG(3.0), -1000.0, 1000.0]))
    assert [one.entailed for one in found] == pytest.approx([0.5, 0.75, 0.0, 1.0])
    assert all(one.contradicted == 0.0 and one.entailed + one.neutral == pytest.approx(1.0) for one in found)


def test_huge_logits_do_not_overflow() -> None:
    (found,) = read_label_mapping({"0": "entailment", "1": "neutral", "2": "contradiction"}).probabilities(
        np.array([[1e4, -1e4, 0.0]])
    )
    assert (found.entailed, found.neutral, found.contradicted) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("id2label", "size", "message"),
    [
        ({"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, 3, "LABEL_|label_0"),
        ({}, 3, "expected one logit"),
        ({"0": "entailment", "1": "neutral"}, 3, "names 2 labels, but the model has 3"),
        ({"1": "entailment", "2": "neutral"}, 2, "expected one logit"),
    ],
)
def test_meaningless_labels_are_rejected(id2label: dict[str, str], size: int, message: str) -> None:
    with pytest.raises(JudgeUnavailableError, match=message):
        read_label_mapping(id2label, size=size)
