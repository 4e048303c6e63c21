import pytest

from judges.features import PublishedThresholdFeatures, combine, prepare
from judges.label_thresholds import Thresholds
from judges.types import Label, Probabilities

EVIDENCE = "The hotel near the lake serves breakfast on a terrace from seven."
CLAIM = "Guests can have their meal outdoors in the morning."


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8])
def test_score_at_the_published_threshold_equals_the_default_threshold(threshold: float) -> None:
    features = PublishedThresholdFeatures(threshold)
    found = features.combine(EVIDENCE, CLAIM, Probabilities(threshold, 1.0 - threshold, 0.0))
    assert found.probabilities.entailed == pytest.approx(Thresholds().entailment)
    assert found.explanation is None


@pytest.mark.parametrize(("entailed", "label"), [(0.49, Label.UNVERIFIABLE), (0.51, Label.SUPPORTED)])
def test_default_policy_supports_a_claim_as_the_judge_does(entailed: float, label: Label) -> None:
    found = PublishedThresholdFeatures(0.5).combine(EVIDENCE, CLAIM, Probabilities(entailed, 1.0 - entailed, 0.0))
    assert Thresholds().label(found.probabilities.entailed, found.probabilities.contradicted) is label


def test_order_and_sum_of_scores_are_kept() -> None:
    features = PublishedThresholdFeatures(0.5)
    scores = [
        features.combine(EVIDENCE, CLAIM, Probabilities(p, 0.75 * (1.0 - p), 0.25 * (1.0 - p))).probabilities
        for p in (0.0, 0.1, 0.4, 0.6, 0.9, 0.99)
    ]
    assert [s.entailed for s in scores] == sorted(s.entailed for s in scores)
    for score in scores:
        assert score.entailed + score.neutral + score.contradicted == pytest.approx(1.0)
        assert score.contradicted == pytest.approx(0.25 * (1.0 - score.entailed), abs=1e-6)


def test_differing_number_outweighs_a_judge_without_contradictions() -> None:
    features = PublishedThresholdFeatures(0.5)
    found = features.combine(
        "The warranty lasts two years.", "The warranty lasts five years.", Probabilities(0.6, 0.4, 0.0)
    )
    assert found.probabilities.contradicted > 0.7
    assert found.explanation is not None


def test_regressions_of_the_embedded_model_are_not_used() -> None:
    model = Probabilities(0.5, 0.5, 0.0)
    found = PublishedThresholdFeatures(0.5).combine(EVIDENCE, CLAIM, model)
    assert found.probabilities != combine(EVIDENCE, CLAIM, model).probabilities
    prepared = PublishedThresholdFeatures.prepare(CLAIM)
    assert (
        PublishedThresholdFeatures(0.5).combine(
            prepare(EVIDENCE), PublishedThresholdFeatures.comparison(prepared), model
        )
        == found
    )
