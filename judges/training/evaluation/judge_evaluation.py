"""Evaluates the whole judge on a data set, using the thresholds of the default policy rules."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from judges import features as signals
from judges.checker import GroundingChecker
from judges.cross_encoder.factory import open_encoders
from judges.cross_encoder.model_files import cores
from judges.features import (
    ClaimComparison,
    Combined,
    FeatureExtractor,
    Features,
    Prepared,
    Wording,
    measure_wording,
    vector,
)
from judges.label_thresholds import Thresholds
from judges.training.evaluation.metrics import Figures, Floats, measure, truth_of
from judges.types import Chunk, Claim, ClaimVerdict, Label, Probabilities, Span
from judges.verdicts.claim_judge import ClaimJudge

THRESHOLDS = Thresholds()
"""The default thresholds of a policy."""

_SOURCES_PER_CLAIM = 5

_PART = 100
"""The number of claims passed to a process at a time."""

Rows = Sequence[Mapping[str, Any]]
Folders = Sequence[Path]
"""The folder of the judge's encoder, or the folders of both encoders."""
ClaimAndDocuments = tuple[Sequence[str], str]
"""The documents, and a claim about them."""


@dataclass(frozen=True, slots=True)
class JudgeInputs:
    """The combiner's inputs for one claim: features, wording measures and signals."""

    vector: list[float]
    wording: Wording
    features: Features


class Recorder:
    """The shipped signals, extended to record their latest inputs."""

    def __init__(self) -> None:
        self.last = JudgeInputs([], Wording(), Features())

    def prepare(self, text: str, context: str = "", claims: str = "", /) -> Prepared:
        return signals.prepare(text, context, claims)

    def together(self, parts: Sequence[Prepared], /) -> Prepared:
        return signals.together(parts)

    def as_written(self, text: str, claim: Prepared, evidence: Sequence[Prepared], /) -> str:
        return signals.as_written(text, claim, evidence)

    def comparison(self, claim: Prepared, /) -> ClaimComparison:
        return signals.comparison(claim)

    def combine(
        self,
        evidence: Prepared | str,
        claim: ClaimComparison | Prepared | str,
        model: Probabilities,
        best: tuple[float, float] | None = None,
        /,
    ) -> Combined:
        evidence = evidence if isinstance(evidence, Prepared) else signals.prepare(evidence)
        claim = signals.prepare(claim) if isinstance(claim, str) else claim
        held = claim if isinstance(claim, ClaimComparison) else ClaimComparison(claim)
        features = held.features(evidence)
        self.last = JudgeInputs(vector(model, features, best), measure_wording(evidence, held.claim), features)
        return Combined(model, None)


def look(folders: Folders, claims: Sequence[ClaimAndDocuments]) -> Sequence[JudgeInputs]:
    """Return the combiner inputs that the judge with the encoders in ``folders`` computes for each claim and its
    documents."""
    return _in_processes(_look, folders, claims)


def judge(folders: Folders, rows: Rows) -> tuple[Floats, Sequence[Label]]:
    """Return P(entailed) and the verdict for each row's ``hypothesis``, given its ``documents`` or, as the only
    document, its ``premise``.
    """
    claims = [(row.get("documents") or (row["premise"],), row["hypothesis"]) for row in rows]
    found = _in_processes(_judge, folders, claims)
    return np.array([entailed for entailed, _ in found]), [label for _, label in found]


def _in_processes(
    work: Callable[[Folders, Sequence[ClaimAndDocuments]], list[Any]],
    folders: Folders,
    claims: Sequence[ClaimAndDocuments],
) -> list[Any]:
    """Distribute the claims over processes, one per core, and return the results in the order of the claims."""
    parts = [claims[start : start + _PART] for start in range(0, len(claims), _PART)]
    with ProcessPoolExecutor(cores()) as pool:
        return [result for part in pool.map(partial(work, folders), parts) for result in part]


def _look(folders: Folders, claims: Sequence[ClaimAndDocuments]) -> list[JudgeInputs]:
    recorder = Recorder()
    found: list[JudgeInputs] = []
    asyncio.run(_adjudicate(folders, recorder, claims, lambda _verdict: found.append(recorder.last)))
    return found


def _judge(folders: Folders, claims: Sequence[ClaimAndDocuments]) -> list[tuple[float, Label]]:
    found: list[tuple[float, Label]] = []
    asyncio.run(_adjudicate(folders, signals, claims, lambda verdict: found.append((verdict.entailed, verdict.label))))
    return found


async def _adjudicate(
    folders: Folders,
    weighing: FeatureExtractor,
    claims: Sequence[ClaimAndDocuments],
    keep: Callable[[ClaimVerdict], None],
) -> None:
    scorer = open_encoders(folders, threads=1)
    checker = GroundingChecker(scorer)
    await checker.start()
    for texts, claim in claims:
        index = await checker.prepare([Chunk(id=str(number), text=text) for number, text in enumerate(texts)])
        adjudicator = ClaimJudge(
            scorer, index, weighing, thresholds=THRESHOLDS, max_sources=_SOURCES_PER_CLAIM, fuses=True
        )
        keep(await adjudicator.judge(Claim(text=claim, span=Span(0, len(claim)), sentence_index=0)))
    await checker.aclose()


def figures(rows: Rows, entailed: Floats, labels: Sequence[Label]) -> dict[str, Figures]:
    """Return the metrics per source. A claim counts as supported at the shipped threshold, and as blocked if its
    verdict is contradicted."""
    truth = truth_of(rows)
    blocked = np.array([label is Label.CONTRADICTED for label in labels])
    found: dict[str, Figures] = {}
    for source in sorted({row["source"] for row in rows}):
        mine = np.array([row["source"] == source for row in rows])
        found[source] = measure(entailed[mine], truth[mine], threshold=THRESHOLDS.entailment, blocked=blocked[mine])
    return found
