"""Estimates the labels of training rows from their wording alone."""

import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import log1p
from typing import Final

import numpy as np
import numpy.typing as npt

from judges.cross_encoder.model_files import cores
from judges.features import Prepared, measure_wording, prepare
from judges.features.word_overlap import share_of_runs, stands, words_of
from judges.training.data.datasets import SNLI, Group, Target
from judges.training.evaluation.metrics import Floats

_ROWS: Final = 40_000
_PART: Final = 200
"""The number of rows passed to a process at a time."""


@dataclass(frozen=True, slots=True)
class Worded:
    """The measures as an array (rows, measures) and, for each row, its source and whether it is entailed."""

    measures: Floats
    entailed: npt.NDArray[np.bool_]
    sources: npt.NDArray[np.str_]


def measure_rows(groups: Sequence[Group], *, seed: int = 11) -> Worded:
    """Return the wording measures of rows sampled from ``groups``, without captions."""
    rows = [(group.premise, row) for group in groups if group.source != SNLI for row in group.rows]
    drawn = random.Random(seed).sample(rows, min(len(rows), _ROWS))
    return Worded(
        measure_pairs([(premise, row.claim) for premise, row in drawn]),
        np.array([row.target is Target.ENTAILED for _, row in drawn]),
        np.array([row.source for _, row in drawn]),
    )


def measure_pairs(pairs: Sequence[tuple[str, str]]) -> Floats:
    """Return the measures for each pair (premise, claim)."""
    with ProcessPoolExecutor(cores()) as pool:
        return np.array(list(pool.map(_measure, pairs, chunksize=_PART)))


def _measure(pair: tuple[str, str]) -> list[float]:
    return measures(prepare(pair[0]), prepare(pair[1]))


def measures(evidence: Prepared, claim: Prepared) -> list[float]:
    """Return the combiner's wording measures and six more. Four are shares of the claim found in the evidence: its
    three-word runs, its longest run, its numbers and its names. Two are the logarithms of both lengths in words.
    """
    words = words_of(claim)
    shared = measure_wording(evidence, claim)
    combined = [shared.content, shared.sentence, shared.pairs]
    if not words or not evidence.sentences:
        return [*combined, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    keys = {quantity.key for quantity in evidence.quantities}
    asked = [quantity.key for quantity in claim.quantities]
    names = {name for sentence in claim.sentences for name in sentence.names}
    return [
        *combined,
        share_of_runs(claim, evidence, 3),
        _longest(words, evidence) / len(words),
        sum(key in keys for key in asked) / len(asked) if asked else 1.0,
        sum(name in evidence.keys for name in names) / len(names) if names else 1.0,
        log1p(len(words)),
        log1p(len(words_of(evidence))),
    ]


def _longest(words: Sequence[str], evidence: Prepared) -> int:
    best = start = 0
    for end in range(1, len(words) + 1):
        while start < end and not stands(words[start:end], evidence):
            start += 1
        best = max(best, end - start)
    return best
