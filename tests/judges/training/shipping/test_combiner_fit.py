"""The combiner's fit and the floor, on claims constructed so that the right answer is known."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs the extra training")

from judges.features import NAMES, NAMES_OF_TWO, WORDED, Features, Wording
from judges.training.data.datasets import WRITTEN, Group, Row, Target
from judges.training.data.wording_prior import Worded
from judges.training.evaluation.judge_evaluation import JudgeInputs
from judges.training.evaluation.lexical_baseline import floor
from judges.training.shipping import combiner_fit
from judges.training.shipping.combiner_fit import Sample, best_cut, even_weights, fit, sample, write

SOURCES = ("one", "two", "three", "four", "five", "six")
EVIDENCE = "The old mill stands near Bergen. Its wheel turns slowly in summer."


def test_sample_has_claims_of_every_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written claims about a passage are ordered by label, and only some of them are in the sample."""
    monkeypatch.setattr(
        combiner_fit, "look", lambda _folder, asked: [JudgeInputs([0.0] * 5, Wording(), Features())] * len(asked)
    )
    labels = (Target.ENTAILED, Target.CONTRADICTED, Target.NEUTRAL)
    groups = [
        Group(
            f"{EVIDENCE} It is mill {number}.",
            tuple(Row(f"Claim {place} of {label.name}.", label, WRITTEN) for label in labels for place in range(4)),
            WRITTEN,
        )
        for number in range(100)
    ]
    seen = sample((Path(),), groups, most=50)
    written = seen.targets[seen.sources == WRITTEN]
    assert len(written) == 6 * 50
    assert all(60 < (written == label).sum() < 140 for label in labels)


def test_threshold_separates_both_classes_in_each_source() -> None:
    """The larger source alone would accept any value; the mean over both requires it to be between 0.4 and 0.6."""
    rng = np.random.default_rng(3)
    scores = np.concatenate([rng.uniform(0.0, 0.4, 400), rng.uniform(0.6, 1.0, 400)])
    wanted = np.repeat([False, True], 400)
    sources = np.tile(["small", *["large"] * 9], 80)
    assert 0.35 < best_cut(scores, wanted, sources) < 0.65


def test_written_claims_move_the_threshold() -> None:
    """Five public sets are best separated at 0.3 and lose a little with each step up; the handwritten ones gain. As one
    set of six they would change nothing; as a third of the whole they do."""
    rng = np.random.default_rng(4)
    names = [*SOURCES[:5], WRITTEN]
    sources = np.repeat(names, 400)
    wanted = np.tile(np.repeat([False, True], 200), 6)
    public = sources != WRITTEN
    scores = np.where(wanted, rng.uniform(0.3, 1.0, 2400), rng.uniform(0.0, 0.3, 2400))
    scores[~public & wanted] = rng.uniform(0.6, 1.0, 200)
    scores[~public & ~wanted] = rng.uniform(0.3, 0.4, 200)
    scores[public & wanted] = rng.choice([0.35, 0.9], 1000, p=[0.1, 0.9])
    assert 0.28 < best_cut(scores[public], wanted[public], sources[public]) < 0.36
    assert 0.36 < best_cut(scores, wanted, sources) < 0.62


def test_both_classes_have_the_same_weight_and_no_source_dominates() -> None:
    sources = np.array(["large"] * 100 + ["small"] * 4)
    wanted = np.array(([True] * 3 + [False]) * 26)
    weights = even_weights(sources, wanted)
    assert weights[wanted].sum() == pytest.approx(weights[~wanted].sum())
    written = np.where(sources == "small", WRITTEN, sources)
    assert even_weights(written, None)[written == WRITTEN].sum() == pytest.approx(5.0)
    plain = even_weights(sources, None)
    assert plain[sources == "large"].sum() == pytest.approx(10.0)
    assert plain[sources == "small"].sum() == pytest.approx(2.0)


def test_informative_features_get_weight_and_the_threshold_is_kept() -> None:
    """The model's own odds predict "entailed", its other odds "contradicted", and the pairs of words what wording
    predicts. A claim on which the model is undecided and wording is neutral ends up near the shipped threshold of
    0.7."""
    rng = np.random.default_rng(5)
    count = 1200
    targets = rng.integers(0, 3, count)
    vectors = rng.normal(0.0, 1.0, (count, len(NAMES)))
    vectors[:, 0] += np.where(targets == Target.ENTAILED, 2.0, -2.0)
    vectors[:, 1] += np.where(targets == Target.CONTRADICTED, 2.0, -2.0)
    sources = rng.choice(SOURCES, count)
    measures = rng.uniform(0.0, 1.0, (3000, 9))
    worded = Worded(measures, measures[:, 2] + rng.normal(0.0, 0.1, 3000) > 0.5, rng.choice(SOURCES, 3000))
    seen = Sample(vectors, np.ones((count, len(WORDED))), [Features()] * count, targets, sources)
    weights = fit(seen, worded)
    names = {name: tuple(one["weights"]) for name, one in weights.items()}
    assert names == {"entailed": NAMES, "worded": WORDED, "contradicted": NAMES}
    assert weights["entailed"]["weights"]["model_entailed"] > 0.5
    assert weights["contradicted"]["weights"]["model_contradicted"] > 0.5
    assert weights["worded"]["weights"]["pairs"] > 5 * abs(weights["worded"]["weights"]["content"])
    assert weights["worded"]["bias"] == pytest.approx(-0.5 * weights["worded"]["weights"]["pairs"], rel=0.2)
    assert 0.4 < 1 / (1 + np.exp(-weights["entailed"]["bias"])) < 0.9


def test_second_encoder_counts_if_it_knows_more(tmp_path: Path) -> None:
    """Only the second encoder's odds predict the labels. Fitting for two encoders leaves the other weights as they
    are."""
    rng = np.random.default_rng(6)
    count = 1200
    targets = rng.integers(0, 3, count)
    vectors = rng.normal(0.0, 1.0, (count, len(NAMES_OF_TWO)))
    vectors[:, -2] += np.where(targets == Target.ENTAILED, 2.0, -2.0)
    vectors[:, -1] += np.where(targets == Target.CONTRADICTED, 2.0, -2.0)
    sources = rng.choice(SOURCES, count)
    worded = Worded(rng.uniform(0.0, 1.0, (3000, 9)), rng.random(3000) > 0.5, rng.choice(SOURCES, 3000))
    weights = fit(Sample(vectors, np.ones((count, len(WORDED))), [Features()] * count, targets, sources), worded)
    assert {name: tuple(one["weights"]) for name, one in weights.items()} == {
        "entailed_by_two": NAMES_OF_TWO,
        "contradicted_by_two": NAMES_OF_TWO,
    }
    assert weights["entailed_by_two"]["weights"]["second_entailed"] > 0.5
    assert weights["contradicted_by_two"]["weights"]["second_contradicted"] > 0.5
    assert abs(weights["entailed_by_two"]["weights"]["model_entailed"]) < 0.1
    file = tmp_path / "weights.json"
    write({"entailed": {"bias": 1.0}, "entailed_by_two": {"bias": 2.0}}, file)
    write(weights, file)
    assert json.loads(file.read_text()) == {"entailed": {"bias": 1.0}, **weights}


def test_floor_measures_wording_alone() -> None:
    """If the true claims share their wording, wording predicts them; if both kinds do, it guesses."""
    rng = np.random.default_rng(7)
    entailed = rng.random(2000) < 0.5
    measures = rng.uniform(0.0, 1.0, (2000, 9))
    measures[:, :5] = np.where(entailed[:, None], 0.8, 0.2) + rng.uniform(-0.2, 0.2, (2000, 5))
    true = ["The old mill stands near Bergen.", "Its wheel turns slowly in summer."]
    told = ["A ferry crosses the fjord every hour.", "Nobody has seen the northern lights today."]
    rows = [
        {"premise": EVIDENCE, "hypothesis": claim, "label": label, "source": source}
        for source, false in (("told", told), ("untold", true))
        for label, claims in (("supported", true), ("unsupported", false))
        for claim in claims
    ]
    found = floor(Worded(measures, entailed, rng.choice(SOURCES, 2000)), rows)
    assert (found["told"].balanced_accuracy, found["told"].roc_auc, found["told"].rows) == (1.0, 1.0, 4)
    assert (found["untold"].balanced_accuracy, found["untold"].roc_auc) == (0.5, 0.5)
