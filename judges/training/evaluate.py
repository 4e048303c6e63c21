"""The encoder alone on a data set: probabilities of its rows, and figures per source."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from judges.training.batches import CLAIM_TOKENS, MOST_WINDOWS, WINDOW_TOKENS, Encoder, Item, collate, nearest
from judges.training.data import Target, read
from judges.training.metrics import Figures, Floats, measure
from judges.training.model import Judge

_BATCH_TOKENS = 8000


@torch.inference_mode()
def probabilities(judge: Judge, rows: Sequence[Mapping[str, str]], encoder: Encoder, *, prefix: bool = True) -> Floats:
    """P(entailed, neutral, contradicted) of rows with ``premise`` and ``hypothesis``, as (rows, 3)."""
    judge.eval()
    items = [_item(row, encoder) for row in rows]
    found = np.zeros((len(rows), 3))
    for places in _batches(items):
        logits = judge(collate([items[place] for place in places], encoder), prefix=prefix)
        found[places] = logits[:, 0].float().softmax(-1).numpy()
    return found


def by_source(rows: Sequence[Mapping[str, str]], probabilities: Floats, *, threshold: float) -> dict[str, Figures]:
    """Figures per source of rows that have a ``label``; contradicted is what is likelier than both others."""
    sources = sorted({row["source"] for row in rows})
    truth = np.array([row["label"] in ("entailed", "supported") for row in rows])
    blocked = probabilities.argmax(1) == Target.CONTRADICTED
    found: dict[str, Figures] = {}
    for source in sources:
        mine = np.array([row["source"] == source for row in rows])
        found[source] = measure(probabilities[mine, 0], truth[mine], threshold=threshold, blocked=blocked[mine])
    return found


def load(file: Path) -> list[Mapping[str, str]]:
    """The rows of a data set file."""
    return list(read(file))


def _item(row: Mapping[str, str], encoder: Encoder) -> Item:
    (claim,) = encoder.encode([row["hypothesis"]])
    claim = claim[: CLAIM_TOKENS - 2]
    windows = nearest(encoder.windows(row["premise"], WINDOW_TOKENS), [claim], MOST_WINDOWS)
    return Item(tuple(windows), ((claim, Target.ENTAILED),))


def _batches(items: Sequence[Item]) -> Iterator[list[int]]:
    order = sorted(range(len(items)), key=lambda place: items[place].evidence_tokens)
    batch: list[int] = []
    for place in order:
        size = items[place].evidence_tokens + CLAIM_TOKENS
        if batch and (len(batch) + 1) * size > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
