"""Confidence intervals for proportions and means over a sample of cases."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

LEVEL: Final = 0.95
RESAMPLES: Final = 2_000
SEED: Final = 20
_AT_ONCE: Final = 50
_Z: Final = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""

WILSON: Final = "Wilson score interval"
BOOTSTRAP: Final = f"percentile bootstrap over cases, {RESAMPLES} resamples, seed {SEED}"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its confidence interval at ``level``, computed by ``method``. Without cases, the value and the
    bounds are None. With a single case, only the bounds are None."""

    value: float | None
    low: float | None = None
    high: float | None = None
    level: float = LEVEL
    method: str | None = None


def share(hits: int, of: int) -> Estimate:
    """Estimate a proportion over independent cases with the Wilson score interval (1927)."""
    if of == 0:
        return Estimate(value=None)
    low, high = _wilson(hits / of, of)
    return Estimate(value=hits / of, low=low, high=high, method=WILSON)


def mean(values: Sequence[float]) -> Estimate:
    """Estimate the mean of values from 0 to 1, one per case. If all values are 0 or all are 1, resampling would give an
    empty interval, so the values are treated as a proportion instead."""
    if not len(values):
        return Estimate(value=None)
    if set(values) in ({0.0}, {1.0}):
        return share(round(sum(values)), len(values))
    numbers = np.asarray(values, dtype=np.float64)
    return _resampled(numbers, np.ones_like(numbers))


def ratio(parts: Sequence[float], wholes: Sequence[float]) -> Estimate:
    """Estimate the sum of ``parts`` divided by the sum of ``wholes``. Both have one value per case. Cases are resampled
    rather than claims, because the claims of a case are not independent."""
    total = sum(wholes)
    if total == 0:
        return Estimate(value=None)
    if sum(parts) in (0, total):
        low, high = _wilson(sum(parts) / total, len(parts))
        return Estimate(value=sum(parts) / total, low=low, high=high, method=WILSON)
    return _resampled(np.asarray(parts, dtype=np.float64), np.asarray(wholes, dtype=np.float64))


def difference(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Estimate the mean difference over the pairs (second value minus first)."""
    if not pairs:
        return Estimate(value=None)
    numbers = np.asarray([second - first for first, second in pairs], dtype=np.float64)
    return _resampled(numbers, np.ones_like(numbers))


def _resampled(parts: Floats, wholes: Floats) -> Estimate:
    value = float(parts.sum() / wholes.sum())
    count = len(parts)
    if count < 2:
        return Estimate(value=value)
    # Equal cases are drawn together: the distribution is the same, and a million cases take no longer than a hundred.
    kinds, alike = np.unique(np.stack([parts, wholes]), axis=1, return_counts=True)
    generator = np.random.default_rng(SEED)
    found = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, _AT_ONCE):
        drawn = generator.multinomial(count, alike / count, size=min(_AT_ONCE, RESAMPLES - start))
        sums = drawn @ kinds.T
        found[start : start + len(sums)] = sums[:, 0] / np.maximum(sums[:, 1], 1e-9)
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value=value, low=float(low), high=float(high), method=BOOTSTRAP)


def _wilson(value: float, count: int) -> tuple[float, float]:
    spread = _Z * sqrt(value * (1 - value) / count + _Z**2 / (4 * count**2))
    centre = value + _Z**2 / (2 * count)
    scale = 1 + _Z**2 / count
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
