"""What a judge is measured by, over one data set and over all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One data set's figures, each from 0 to 1; nan where it has rows of one class alone."""

    rows: int
    balanced_accuracy: float
    roc_auc: float
    f1_unsupported: float
    false_block: float
    """Share of supported claims that are judged contradicted."""


def measure(entailed: Floats, supported: Flags, *, threshold: float, blocked: Flags) -> Figures:
    """Figures of one set: ``supported`` is the truth, a claim counts as supported at ``entailed >= threshold``, and
    ``blocked`` are the claims that the judge calls contradicted."""
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
    """Chance that a positive scores higher than a negative, half where they tie (Mann-Whitney)."""
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def macro(figures: Mapping[str, Figures], name: str) -> float:
    """The mean of one figure over the data sets, each counting the same."""
    return float(np.nanmean([getattr(one, name) for one in figures.values()]))


def table(figures: Mapping[str, Figures]) -> str:
    """The figures as a Markdown table, the macro average last."""
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


def _line(source: str, rows: int, values: Sequence[float]) -> str:
    return f"| {source} | {rows} | " + " | ".join(f"{value:.3f}" for value in values) + " |"


def _share(part: Flags, of: Flags) -> float:
    return float(part.sum() / of.sum()) if of.any() else float("nan")
