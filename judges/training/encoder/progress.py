"""Tracks the progress of a run by evaluating the encoder alone on small samples of each target domain."""

import logging
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from judges.training.data import written_claims as written
from judges.training.data.batching import Encoder
from judges.training.data.datasets import WRITTEN, Group
from judges.training.encoder.model import Judge
from judges.training.evaluation import encoder_evaluation as evaluate
from judges.training.evaluation.metrics import macro, roc_auc

log = logging.getLogger(__name__)

FILE: Final = "curve.md"
_PER_SOURCE: Final = 40
_PASSAGES: Final = 120
_COLUMNS: Final = (
    "steps",
    "k tokens",
    "loss",
    "dev ROC-AUC",
    "dev balanced accuracy",
    "replies ROC-AUC",
    "against contradicted",
    "called supported: true",
    "contradicted",
    "paraphrases ROC-AUC",
    "twins ROC-AUC",
    "against contradicted",
)

Rows = Sequence[Mapping[str, Any]]


class Curve:
    """Writes a line of metrics to ``curve.md`` in the run's folder at each evaluation."""

    def __init__(
        self, folder: Path, encoder: Encoder, dev: Rows, kept: Sequence[Group], *, prefix: bool = True, threads: int = 2
    ) -> None:
        rng = random.Random(7)
        by_source: dict[str, list[Mapping[str, Any]]] = {}
        for row in dev:
            by_source.setdefault(row["source"], []).append(row)
        self._file = folder / FILE
        self._encoder = encoder
        self._prefix = prefix
        self._threads = threads
        self._dev = [row for rows in by_source.values() for row in rng.sample(rows, min(len(rows), _PER_SOURCE))]
        passages = [group for group in kept if group.source == WRITTEN]
        self._replies = written.measured(written.REPLIES)
        self._others: list[Rows] = [
            written.measured(written.PARAPHRASES)[: 5 * _PASSAGES],
            written.rows(rng.sample(passages, min(len(passages), _PASSAGES))),
        ]

    def __call__(self, judge: Judge, step: int, tokens: int, loss: float) -> None:
        dev = self._judged(judge, self._dev)
        figures = evaluate.by_source(self._dev, dev, threshold=0.5)
        columns = [macro(figures, "roc_auc"), macro(figures, "balanced_accuracy")]
        entailed = self._judged(judge, self._replies)[:, 0]
        labels = np.array([row["label"] for row in self._replies])
        columns += _against(entailed, labels)
        columns += [float((entailed[labels == label] >= 0.5).mean()) for label in ("entailed", "contradicted")]
        for rows, places in zip(self._others, (1, 2), strict=True):
            labels = np.array([row["label"] for row in rows])
            columns += _against(self._judged(judge, rows)[:, 0], labels)[:places]
        self._write([str(step), str(tokens // 1000), f"{loss:.3f}", *(f"{value:.3f}" for value in columns)])

    def _judged(self, judge: Judge, rows: Rows) -> Any:
        return evaluate.probabilities(judge, rows, self._encoder, prefix=self._prefix, threads=self._threads)

    def _write(self, values: Sequence[str]) -> None:
        log.info("progress: %s", ", ".join(f"{name} {value}" for name, value in zip(_COLUMNS, values, strict=True)))
        head = "" if self._file.is_file() else _row(_COLUMNS) + _row(["---"] * len(_COLUMNS))
        with self._file.open("a", encoding="utf-8") as file:
            file.write(head + _row(values))


def _against(entailed: Any, labels: Any) -> list[float]:
    """Return the ROC-AUC of entailed claims against all others, and against contradicted claims only."""
    true, false = labels == "entailed", labels == "contradicted"
    return [roc_auc(entailed, true), roc_auc(entailed[true | false], true[true | false])]


def _row(values: Sequence[str]) -> str:
    return "| " + " | ".join(values) + " |\n"
