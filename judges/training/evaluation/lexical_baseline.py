"""The lexical baseline, which predicts support from wording alone. A model must outperform it."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any, Final

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from judges.training.data.wording_prior import Worded, measure_pairs
from judges.training.evaluation.judge_evaluation import THRESHOLDS, figures
from judges.training.evaluation.metrics import Figures, Floats
from judges.training.shipping.combiner_fit import best_cut, even_weights
from judges.types import Label

_ROWS: Final = 7000
_DRAWS: Final = 12


def floor(worded: Worded, rows: Sequence[Mapping[str, Any]]) -> dict[str, Figures]:
    """Return the metrics, per source of ``rows``, of boosted trees that see only the claim's wording. The trees are
    fitted on 7,000 training rows. On a small set, the choice of these rows changes the result by several points, so the
    metrics are means over twelve samples. Each sample's threshold is the one that best separates the classes in that
    sample."""
    asked = measure_pairs([(row["premise"], row["hypothesis"]) for row in rows])
    drawn = [figures(rows, _draw(worded, asked, seed), [Label.UNVERIFIABLE] * len(rows)) for seed in range(_DRAWS)]
    return {source: _mean([one[source] for one in drawn]) for source in drawn[0]}


def _draw(worded: Worded, asked: Floats, seed: int) -> Floats:
    """Return the P(entailed) that the trees of one sample predict, shifted so that their best threshold becomes the
    shipped threshold."""
    of = np.random.default_rng(seed).choice(len(worded.sources), min(_ROWS, len(worded.sources)), replace=False)
    positive, sources = worded.entailed[of], worded.sources[of]
    trees = HistGradientBoostingClassifier(
        max_iter=80, learning_rate=0.08, max_depth=3, min_samples_leaf=60, l2_regularization=5.0, random_state=seed
    ).fit(worded.measures[of], positive, sample_weight=even_weights(sources, positive))
    cut = best_cut(trees.decision_function(worded.measures[of]), positive, sources)
    share = THRESHOLDS.entailment
    return np.asarray(1 / (1 + np.exp(cut - trees.decision_function(asked)) * (1 - share) / share))


def _mean(of: Sequence[Figures]) -> Figures:
    rows, *others = np.mean([astuple(one) for one in of], axis=0).tolist()
    names = ("balanced_accuracy", "roc_auc", "f1_unsupported", "false_block")
    return Figures(rows=int(rows), **dict(zip(names, others, strict=True)))
