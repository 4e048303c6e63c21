"""The whole judge on a data set, as a policy with default rules would have it."""

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
from judges.cross_encoder import CachedEvidenceScorer
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
from judges.thresholds import Thresholds
from judges.training.evaluation.metrics import Figures, Floats, measure
from judges.types import Chunk, Claim, ClaimVerdict, Label, Probabilities, Span
from judges.verdicts.claim_judge import ClaimJudge

THRESHOLDS = Thresholds()
"""Those of a policy that sets none."""

_SOURCES_PER_CLAIM = 5

_PART = 100
"""Claims given to a process at once."""

Rows = Sequence[Mapping[str, Any]]
Asked = tuple[Sequence[str], str]
"""Documents, and a claim about them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the judge had before it of one claim: the combiner's vector, the wording shared, what the signals saw."""

    vector: list[float]
    wording: Wording
    features: Features


class Recorder:
    """The signals that ship, which also keep what they were last asked to combine."""

    def __init__(self) -> None:
        self.last = Seen([], Wording(), Features())

    def prepare(self, text: str, context: str = "", asked: str = "", /) -> Prepared:
        return signals.prepare(text, context, asked)

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
        self.last = Seen(vector(model, features, best), measure_wording(evidence, held.claim), features)
        return Combined(model, None)


def look(folder: Path, asked: Sequence[Asked]) -> Sequence[Seen]:
    """What the judge at work, with the model of ``folder``, sees of each claim against its documents."""
    return _in_processes(_look, folder, asked)


def judge(folder: Path, rows: Rows) -> tuple[Floats, Sequence[Label]]:
    """P(entailed) and the verdict of each row's ``hypothesis`` against its ``documents``, or against its ``premise`` as
    the only one."""
    asked = [(row.get("documents") or (row["premise"],), row["hypothesis"]) for row in rows]
    found = _in_processes(_judge, folder, asked)
    return np.array([entailed for entailed, _ in found]), [label for _, label in found]


def _in_processes(
    work: Callable[[Path, Sequence[Asked]], list[Any]], folder: Path, asked: Sequence[Asked]
) -> list[Any]:
    """Share the claims out among processes, one a core; what they find in the order of the claims."""
    parts = [asked[start : start + _PART] for start in range(0, len(asked), _PART)]
    with ProcessPoolExecutor(cores()) as pool:
        return [one for part in pool.map(partial(work, folder), parts) for one in part]


def _look(folder: Path, asked: Sequence[Asked]) -> list[Seen]:
    recorder = Recorder()
    found: list[Seen] = []
    asyncio.run(_adjudicate(folder, recorder, asked, lambda _verdict: found.append(recorder.last)))
    return found


def _judge(folder: Path, asked: Sequence[Asked]) -> list[tuple[float, Label]]:
    found: list[tuple[float, Label]] = []
    asyncio.run(_adjudicate(folder, signals, asked, lambda verdict: found.append((verdict.entailed, verdict.label))))
    return found


async def _adjudicate(
    folder: Path, weighing: FeatureExtractor, asked: Sequence[Asked], keep: Callable[[ClaimVerdict], None]
) -> None:
    scorer = CachedEvidenceScorer(folder, threads=1)
    checker = GroundingChecker(scorer)
    await checker.start()
    for texts, claim in asked:
        index = await checker.prepare([Chunk(id=str(number), text=text) for number, text in enumerate(texts)])
        adjudicator = ClaimJudge(
            scorer, index, weighing, thresholds=THRESHOLDS, max_sources=_SOURCES_PER_CLAIM, fuses=True
        )
        keep(await adjudicator.judge(Claim(text=claim, span=Span(0, len(claim)), sentence_index=0)))
    await checker.aclose()


def figures(rows: Rows, entailed: Floats, labels: Sequence[Label]) -> dict[str, Figures]:
    """Per source: supported at the shipped threshold, blocked where the verdict is contradicted."""
    truth = np.array([row["label"] in ("entailed", "supported") for row in rows])
    blocked = np.array([label is Label.CONTRADICTED for label in labels])
    found: dict[str, Figures] = {}
    for source in sorted({row["source"] for row in rows}):
        mine = np.array([row["source"] == source for row in rows])
        found[source] = measure(entailed[mine], truth[mine], threshold=THRESHOLDS.entailment, blocked=blocked[mine])
    return found
