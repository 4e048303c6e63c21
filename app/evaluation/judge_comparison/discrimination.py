"""How well a judge separates supported from unsupported cases, with confidence intervals.

Each class of cases is resampled separately (a stratified bootstrap), because the case file determines the size of each
class.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from app.evaluation.runs.confidence_intervals import LEVEL, RESAMPLES, SEED, Estimate, share

STRATIFIED: Final = f"percentile bootstrap over the cases of each class, {RESAMPLES} resamples, seed {SEED}"
WILSON_MEAN: Final = "mean of the Wilson score intervals of both classes"

_AT_ONCE: Final = 100
_BOUNDS: Final = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)

Floats = npt.NDArray[np.float64]


def balanced_accuracy(labels: Sequence[bool], decisions: Sequence[bool]) -> Estimate:
    """Estimate the balanced accuracy: the mean of the judge's accuracy on supported cases and its accuracy on
    unsupported cases.

    The value is None unless both classes have cases. If all cases of each class get the same decision, resampling would
    give an interval of width 0, so the mean of the Wilson intervals is used.
    """
    pairs = list(zip(labels, decisions, strict=True))
    right = [[decision is kind for label, decision in pairs if label is kind] for kind in (True, False)]
    if not all(right):
        return Estimate(value=None)
    shares = [share(sum(hits), len(hits)) for hits in right]
    value = sum(one.value or 0.0 for one in shares) / 2
    if all(one.value in (0.0, 1.0) for one in shares):
        low, high = (sum(one.low or 0.0 for one in shares) / 2, sum(one.high or 0.0 for one in shares) / 2)
        return Estimate(value=value, low=low, high=high, method=WILSON_MEAN)
    generator = np.random.default_rng(SEED)
    drawn = [generator.binomial(len(hits), sum(hits) / len(hits), RESAMPLES) / len(hits) for hits in right]
    low, high = np.quantile((drawn[0] + drawn[1]) / 2, _BOUNDS)
    return Estimate(value=value, low=float(low), high=float(high), method=STRATIFIED)


def roc_auc(labels: Sequence[bool], scores: Sequence[float]) -> Estimate:
    """Estimate the probability that a supported case scores higher than an unsupported case. Ties count half.

    The value is None unless both classes have cases. The bounds are None if the scores separate the classes perfectly,
    because resampling would give an empty interval.
    """
    values, places = np.unique(np.asarray(scores, dtype=np.float64), return_inverse=True)
    marks = np.asarray(labels, dtype=bool)
    positive = np.bincount(places[marks], minlength=len(values)).astype(np.float64)
    negative = np.bincount(places[~marks], minlength=len(values)).astype(np.float64)
    if not positive.sum() or not negative.sum():
        return Estimate(value=None)
    value = float(_area(positive[None], negative[None])[0])
    if value in (0.0, 1.0):
        return Estimate(value=value)
    generator = np.random.default_rng(SEED)
    found: list[Floats] = []
    for start in range(0, RESAMPLES, _AT_ONCE):
        size = min(_AT_ONCE, RESAMPLES - start)
        found.append(_area(_redrawn(generator, positive, size), _redrawn(generator, negative, size)))
    low, high = np.quantile(np.concatenate(found), _BOUNDS)
    return Estimate(value=value, low=float(low), high=float(high), method=STRATIFIED)


def _area(positive: Floats, negative: Floats) -> Floats:
    """Return the area under the ROC curve for each row of counts. The columns are in ascending order of score."""
    below = np.cumsum(negative, axis=1) - negative / 2
    area: Floats = (positive * below).sum(axis=1) / (positive.sum(axis=1) * negative.sum(axis=1))
    return area


def _redrawn(generator: np.random.Generator, counts: Floats, size: int) -> Floats:
    total = counts.sum()
    return generator.multinomial(int(total), counts / total, size=size).astype(np.float64)
