"""Distillation: a small encoder learns from the probabilities that a larger one assigns (Hinton et al. 2015,
"Distilling the Knowledge in a Neural Network", arXiv:1503.02531)."""

import dataclasses
from pathlib import Path
from typing import Final, Self

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from judges.training.data.batching import Batch, Ids
from judges.training.encoder import adapters, checkpoints
from judges.training.encoder.bases import BASES, tokenizer
from judges.training.encoder.model import Judge, from_base, loss

SHARE: Final = 0.8
"""The weight of the teacher's probabilities in the loss. The labels have the rest."""


class Teacher:
    """A trained encoder that judges the batches of another encoder. Both read the same pieces of words, but with
    different ids.
    """

    def __init__(self, judge: Judge, ids: Ids) -> None:
        """``ids`` has the teacher's id of each token, by the student's id."""
        self._judge = judge.eval()
        self._ids = ids

    @classmethod
    def kept(cls, folder: Path, student: Path, *, half: bool = True) -> Self:
        """Load the run that ``keep`` wrote to ``folder``. ``student`` is the student's ``tokenizer.json``. Raises
        FileNotFoundError, and ValueError if the two have different vocabularies.
        """
        state = checkpoints.kept(folder)
        if state is None:
            raise FileNotFoundError(f"{folder} contains no run written by `keep`")
        plan = state["plan"]
        base = BASES[plan["base"]].folder()
        judge = adapters.adapt(from_base(base), plan["rank"], frozen=plan["frozen"])
        checkpoints.begin(judge, folder)
        judge = adapters.merge(judge)
        return cls(judge.halved() if half else judge, matching(tokenizer(student), tokenizer(base / "tokenizer.json")))

    def logits(self, batch: Batch) -> Tensor:
        """Return the teacher's logits (claims, 3)."""
        with torch.no_grad():
            return torch.as_tensor(self._judge(dataclasses.replace(batch, ids=self._ids[batch.ids])))


def matching(student: Tokenizer, teacher: Tokenizer) -> Ids:
    """Return the teacher's id of each of the student's tokens. Raises ValueError if the teacher lacks one."""
    there = teacher.get_vocab()
    here = student.get_vocab()
    ids = np.zeros(max(here.values()) + 1, dtype=np.int64)
    for token, place in here.items():
        if token not in there:
            raise ValueError(f"the teacher's vocabulary lacks {token!r}")
        ids[place] = there[token]
    return ids


def distilled_loss(logits: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of the Kullback-Leibler divergence from the teacher's probabilities (``taught``, as logits) and
    of the cross-entropy with the labels, weighted with ``SHARE``.
    """
    logs, goal = (functional.log_softmax(one.float(), dim=-1) for one in (logits, taught))
    learned = functional.kl_div(logs, goal, log_target=True, reduction="batchmean")
    return SHARE * learned + (1 - SHARE) * loss(logits, targets)
