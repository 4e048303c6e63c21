"""What wording alone can tell: the floor that a model has to stand above."""

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
    """Figures per source of ``rows`` by boosted trees that see a claim's wording and nothing else.

    They are fitted on 7,000 rows of the pool; which ones they are moves a small set by several points, so the figures
    are means over twelve draws. The threshold of each is where the draw's own classes are told apart best.
    """
    asked = measure_pairs([(row["premise"], row["hypothesis"]) for row in rows])
    drawn = [figures(rows, _draw(worded, asked, seed), [Label.UNVERIFIABLE] * len(rows)) for seed in range(_DRAWS)]
    return {source: _mean([one[source] for one in drawn]) for source in drawn[0]}


def _draw(worded: Worded, asked: Floats, seed: int) -> Floats:
    """P(entailed) by one draw's trees, moved so that their own threshold is the shipped one."""
    of = np.random.default_rng(seed).choice(len(worded.sources), min(_ROWS, len(worded.sources)), replace=False)
    wanted, sources = worded.entailed[of], worded.sources[of]
    trees = HistGradientBoostingClassifier(
        max_iter=80, learning_rate=0.08, max_depth=3, min_samples_leaf=60, l2_regularization=5.0, random_state=seed
    ).fit(worded.measures[of], wanted, sample_weight=even_weights(sources, wanted))
    cut = best_cut(trees.decision_function(worded.measures[of]), wanted, sources)
    share = THRESHOLDS.entailment
    return np.asarray(1 / (1 + np.exp(cut - trees.decision_function(asked)) * (1 - share) / share))


def _mean(of: Sequence[Figures]) -> Figures:
    rows, *others = np.mean([astuple(one) for one in of], axis=0).tolist()
    names = ("balanced_accuracy", "roc_auc", "f1_unsupported", "false_block")
    return Figures(rows=int(rows), **dict(zip(names, others, strict=True)))
