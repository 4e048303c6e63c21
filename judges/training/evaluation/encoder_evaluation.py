"""Evaluates the encoder alone on a data set: probabilities for its rows, and metrics per source."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from judges.training.data.batching import CLAIM_TOKENS, MOST_WINDOWS, WINDOW_TOKENS, Encoder, Item, collate, nearest
from judges.training.data.datasets import Target, read
from judges.training.encoder.model import Judge
from judges.training.evaluation.metrics import Figures, Floats, measure, truth_of

_BATCH_TOKENS = 2000
_CLAIMS = 8
"""The maximum number of claims about the same evidence that are judged together."""


def probabilities(
    judge: Judge, rows: Sequence[Mapping[str, Any]], encoder: Encoder, *, prefix: bool = True, threads: int = 1
) -> Floats:
    """Return P(entailed, neutral, contradicted), as an array (rows, 3), for rows with ``hypothesis`` and either
    ``premise`` or ``documents``."""
    judge.eval()
    found = np.zeros((len(rows), 3))

    @torch.inference_mode()
    def work(batch: Sequence[_Asked]) -> None:
        logits = judge(collate([one.item for one in batch], encoder), prefix=prefix)
        found[[place for one in batch for place in one.places]] = logits.float().softmax(-1).numpy()

    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for _ in pool.map(work, _batches(_asked(rows, encoder))):
            pass
    return found


def by_source(rows: Sequence[Mapping[str, str]], probabilities: Floats, *, threshold: float) -> dict[str, Figures]:
    """Return the metrics per source for rows with a ``label``. A claim counts as contradicted if that class is the most
    likely one."""
    sources = sorted({row["source"] for row in rows})
    truth = truth_of(rows)
    blocked = probabilities.argmax(1) == Target.CONTRADICTED
    found: dict[str, Figures] = {}
    for source in sources:
        mine = np.array([row["source"] == source for row in rows])
        found[source] = measure(probabilities[mine, 0], truth[mine], threshold=threshold, blocked=blocked[mine])
    return found


def load(file: Path) -> list[Mapping[str, str]]:
    """Return the rows of a data set file."""
    return list(read(file))


@dataclass(frozen=True, slots=True)
class _Asked:
    item: Item
    places: Sequence[int]
    """The row indices of the claims."""


def _asked(rows: Sequence[Mapping[str, Any]], encoder: Encoder) -> list[_Asked]:
    """Group rows about the same evidence, unless each claim must select its own windows."""
    together: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(rows):
        together.setdefault(tuple(row.get("documents") or (row["premise"],)), []).append(place)
    claims = [ids[: CLAIM_TOKENS - 2] for ids in encoder.encode([row["hypothesis"] for row in rows])]
    found: list[_Asked] = []
    for texts, places in together.items():
        windows = [window for text in texts for window in encoder.windows(text, WINDOW_TOKENS)]
        each = _CLAIMS if len(windows) <= MOST_WINDOWS else 1
        for start in range(0, len(places), each):
            mine = places[start : start + each]
            chosen = nearest(windows, [claims[place] for place in mine], MOST_WINDOWS)
            found.append(_Asked(Item(tuple(chosen), tuple((claims[place], Target.ENTAILED) for place in mine)), mine))
    return found


def _batches(asked: Sequence[_Asked]) -> Iterator[list[_Asked]]:
    batch: list[_Asked] = []
    for one in asked:
        if batch and sum(each.item.tokens for each in batch) + one.item.tokens > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch
