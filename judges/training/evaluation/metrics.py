"""The metrics of a judge, for single data sets and averaged over all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The metrics for one data set, each from 0 to 1. They are NaN if the data set has rows of only one class."""

    rows: int
    balanced_accuracy: float
    roc_auc: float
    f1_unsupported: float
    false_block: float
    """The share of supported claims that are judged contradicted."""


def truth_of(rows: Sequence[Mapping[str, str]]) -> Flags:
    """Return, for each claim, whether it is supported according to its label."""
    return np.array([row["label"] in ("entailed", "supported") for row in rows])


def measure(entailed: Floats, supported: Flags, *, threshold: float, blocked: Flags) -> Figures:
    """Return the metrics for one data set. ``supported`` is the ground truth, a claim counts as supported if ``entailed
    >= threshold``, and ``blocked`` are the claims judged contradicted.
    """
    said = entailed >= threshold
    hit, rejected = said & supported, ~said & ~supported
    precision = rejected.sum() / max(1, (~said).sum())
    recall = _share(rejected, ~supported)
    both = precision + recall
    return Figures(
        rows=len(supported),
        balanced_accuracy=(_share(hit, supported) + recall) / 2,
        roc_auc=roc_auc(entailed, supported),
        f1_unsupported=2 * precision * recall / both if both else 0.0,
        false_block=_share(blocked & supported, supported),
    )


def roc_auc(scores: Floats, positive: Flags) -> float:
    """Return the probability that a supported claim scores higher than an unsupported one; ties count half
    (Mann-Whitney)."""
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """The claims whose score is in one bin: their number, their mean score, and the share of supported claims."""

    low: float
    rows: int
    score: float
    supported: float


def reliability(scores: Floats, supported: Flags, *, bins: int = 10) -> list[Bin]:
    """Group the claims by score into bins of equal width. Empty bins are left out."""
    places = np.minimum((scores * bins).astype(int), bins - 1)
    found = [(place, places == place) for place in range(bins)]
    return [
        Bin(
            low=place / bins,
            rows=int(mine.sum()),
            score=float(scores[mine].mean()),
            supported=float(supported[mine].mean()),
        )
        for place, mine in found
        if mine.any()
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error: the mean distance between the score and the share of supported claims over
    all bins, weighted by the number of claims in each bin (Guo et al., "On Calibration of Modern Neural Networks", ICML
    2017)."""
    return sum(one.rows * abs(one.score - one.supported) for one in bins) / sum(one.rows for one in bins)


def macro(figures: Mapping[str, Figures], name: str) -> float:
    """Return the unweighted mean of one metric over the data sets."""
    return float(np.nanmean([getattr(one, name) for one in figures.values()]))


def table(figures: Mapping[str, Figures]) -> str:
    """Return the metrics as a Markdown table, with the macro average in the last row."""
    names = ("balanced_accuracy", "roc_auc", "f1_unsupported", "false_block")
    lines = [
        "| data set | rows | balanced accuracy | ROC-AUC | F1 unsupported | false-block rate |",
        "|---|---|---|---|---|---|",
    ]
    for source, one in figures.items():
        lines.append(_line(source, one.rows, [getattr(one, name) for name in names]))
    rows = sum(one.rows for one in figures.values())
    lines.append(_line("**macro**", rows, [macro(figures, name) for name in names]))
    return "\n".join(lines) + "\n"


def calibration_table(bins: Sequence[Bin]) -> str:
    """Return the bins as a Markdown table, followed by the expected calibration error."""
    lines = ["| score from | claims | mean score | supported |", "|---|---|---|---|"]
    lines += [f"| {one.low:.1f} | {one.rows} | {one.score:.3f} | {one.supported:.3f} |" for one in bins]
    return "\n".join([*lines, f"\nexpected calibration error {calibration_error(bins):.3f}\n"])


def _line(source: str, rows: int, values: Sequence[float]) -> str:
    return f"| {source} | {rows} | " + " | ".join(f"{value:.3f}" for value in values) + " |"


def _share(part: Flags, of: Flags) -> float:
    return float(part.sum() / of.sum()) if of.any() else float("nan")
