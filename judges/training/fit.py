"""Fits the combiner of ``judges.signals`` on what the whole judge sees of premises that the encoder has not seen."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import HistGradientBoostingClassifier

from judges import signals
from judges.adjudication import Adjudicator
from judges.base import PairScorer
from judges.pipeline import GroundingChecker
from judges.signals import NAMES, Combined, Features, Prepared, compute, measure_support, spread, vector
from judges.training import augment
from judges.training.data import Group, Row, Target
from judges.types import Chunk, Claim, Probabilities, Span, Thresholds

Vectors = npt.NDArray[np.float64]

SHIPPED_THRESHOLD: Final = 0.7
"""The default of the policies' thresholds, at which both classes are to be told apart best."""
_MOST_FALSE_BLOCKS: Final = 0.01
_DISTRACTORS: Final = 3


@dataclass(frozen=True, slots=True)
class Sample:
    """What is known of some claims: (claims, features), what the signals saw, their targets, and the source of each."""

    vectors: Vectors
    signals: Sequence[Features]
    targets: npt.NDArray[np.int64]
    sources: Sequence[str]


class _Recorder:
    """Signals that remember what they were last asked to combine."""

    def __init__(self) -> None:
        self.last: tuple[list[float], Features] = ([], Features())

    def prepare(self, text: str, context: str = "", /) -> Prepared:
        return signals.prepare(text, context)

    def together(self, parts: Sequence[Prepared], /) -> Prepared:
        return signals.together(parts)

    def combine(
        self,
        evidence: Prepared | str,
        claim: Prepared | str,
        model: Probabilities,
        best: tuple[float, float] | None = None,
        /,
    ) -> Combined:
        evidence, claim = (one if isinstance(one, Prepared) else signals.prepare(one) for one in (evidence, claim))
        self.last = vector(measure_support(evidence, claim), model, best), compute(evidence, claim)
        return Combined(model, None)


async def look(
    scorer: PairScorer, premises: Sequence[Sequence[str]], claims: Sequence[str]
) -> tuple[Vectors, list[Features]]:
    """What the judge at work sees of each claim against its premises (one text or several documents)."""
    checker = GroundingChecker(scorer)
    await checker.start()
    found = np.zeros((len(claims), len(NAMES)))
    seen: list[Features] = []
    for place, (texts, claim) in enumerate(zip(premises, claims, strict=True)):
        chunks = [Chunk(id=str(number), text=text) for number, text in enumerate(texts)]
        index = await checker.prepare(chunks)
        recorder = _Recorder()
        adjudicator = Adjudicator(
            scorer, index, recorder, thresholds=Thresholds(), max_sources=5, fuses=getattr(scorer, "fuses", False)
        )
        await adjudicator.judge(Claim(text=claim, span=Span(0, len(claim)), sentence_index=0))
        found[place], features = recorder.last
        seen.append(features)
    return found, seen


def sample(scorer: PairScorer, groups: Sequence[Group], *, most: int, seed: int = 7) -> Sample:
    """Look at up to ``most`` claims of ``groups``, sources evenly, and at claims made of their sentences; some with
    other passages beside their own."""
    rng = random.Random(seed)
    chosen = _choose(groups, rng, most)
    premises: list[Sequence[str]] = []
    rows: list[Row] = []
    for group, mine in chosen:
        other = rng.choice(groups)
        beside = [rng.choice(groups).premise for _ in range(rng.randint(1, _DISTRACTORS))]
        usable = augment.sentences(group.premise)
        made = augment.claims(usable, augment.sentences(other.premise), rng, count=min(4, len(usable)))
        for row in [*mine, *made]:
            texts = [group.premise, *beside] if rng.random() < 0.5 else [group.premise]
            rng.shuffle(texts)
            premises.append(texts)
            rows.append(row)
    vectors, seen = asyncio.run(look(scorer, premises, [row.claim for row in rows]))
    return Sample(vectors, seen, np.array([row.target for row in rows]), [row.source for row in rows])


def _choose(groups: Sequence[Group], rng: random.Random, most: int) -> list[tuple[Group, list[Row]]]:
    """Groups in random order, with rows of each source until it has its share."""
    sources = {group.source for group in groups}
    share = max(1, most // len(sources))
    seen: Counter[str] = Counter()
    chosen: list[tuple[Group, list[Row]]] = []
    for group in rng.sample(list(groups), len(groups)):
        rows = list(group.rows)[: min(4, share - seen[group.source])]
        if rows:
            seen[group.source] += len(rows)
            chosen.append((group, rows))
    return chosen


def fit(seen: Sample) -> dict[str, Any]:
    """The combiner's weights, as ``judges.signals`` reads them."""
    entailed = seen.targets == Target.ENTAILED
    told = seen.targets != Target.OTHER
    contradicted = seen.targets == Target.CONTRADICTED
    balance = _balance(seen.sources)
    yes = _boost(seen.vectors, entailed, balance * _evenly(entailed, balance))
    no = _boost(seen.vectors[told], contradicted[told], balance[told])
    offsets = _offsets(yes.decision_function(seen.vectors), no.decision_function(seen.vectors), seen, balance)
    return {
        "names": list(NAMES),
        "entailed": _trees(yes, offsets[0]),
        "contradicted": _trees(no, offsets[1]),
    }


def probabilities(entailed: Vectors, contradicted: Vectors, signals: Sequence[Features]) -> Vectors:
    """P(entailed), P(contradicted) as (claims, 2), from the trees' log-odds and the signals."""
    made = [spread(*one) for one in zip(entailed.tolist(), contradicted.tolist(), signals, strict=True)]
    return np.array([(one.entailed, one.contradicted) for one in made])


def _offsets(yes: Vectors, no: Vectors, seen: Sample, balance: Vectors) -> tuple[float, float]:
    """What to add to both log-odds so that the shipped thresholds cut where they should: entailed where both classes
    are told apart best, contradicted where no more than a few supported claims are blocked."""
    entailed = seen.targets == Target.ENTAILED
    shift_yes = shift_no = 0.0
    for _ in range(8):
        found = probabilities(yes + shift_yes, no + shift_no, seen.signals)
        cut = _best_cut(found[:, 0], entailed, balance)
        blocked = float(np.quantile(found[entailed, 1], 1 - _MOST_FALSE_BLOCKS))
        shift_yes += _logit(SHIPPED_THRESHOLD) - _logit(cut)
        shift_no += _logit(SHIPPED_THRESHOLD) - _logit(max(blocked, 0.3))
    return shift_yes, shift_no


def _boost(vectors: Vectors, wanted: npt.NDArray[np.bool_], weights: Vectors) -> HistGradientBoostingClassifier:
    model = HistGradientBoostingClassifier(
        max_iter=80, learning_rate=0.08, max_depth=3, min_samples_leaf=60, l2_regularization=5.0, random_state=1
    )
    return model.fit(vectors, wanted, sample_weight=weights)


def _balance(sources: Sequence[str]) -> Vectors:
    """A weight for each row: a source counts by the square root of its rows, so that none is lost and none rules."""
    counts = Counter(sources)
    return np.array([counts[source] ** -0.5 for source in sources])


def _evenly(wanted: npt.NDArray[np.bool_], weights: Vectors) -> Vectors:
    """Weights that make both classes weigh the same."""
    yes, no = weights[wanted].sum(), weights[~wanted].sum()
    return np.where(wanted, (yes + no) / (2 * yes), (yes + no) / (2 * no))


def _best_cut(scores: Vectors, wanted: npt.NDArray[np.bool_], weights: Vectors) -> float:
    """The score at which both classes are told apart best (balanced accuracy), on what was fitted."""
    cuts = np.quantile(scores, np.linspace(0.05, 0.95, 91))
    yes, no = weights[wanted].sum(), weights[~wanted].sum()
    gains = [
        weights[wanted & (scores >= cut)].sum() / yes + weights[~wanted & (scores < cut)].sum() / no for cut in cuts
    ]
    return float(cuts[int(np.argmax(gains))])


def _trees(model: HistGradientBoostingClassifier, shift: float) -> dict[str, Any]:
    flat: dict[str, list[Any]] = {name: [] for name in ("roots", "feature", "threshold", "left", "right", "value")}
    for (predictor,) in model._predictors:
        base = len(flat["feature"])
        flat["roots"].append(base)
        for node in predictor.nodes:
            leaf = bool(node["is_leaf"])
            flat["feature"].append(-1 if leaf else int(node["feature_idx"]))
            flat["threshold"].append(0.0 if leaf else round(float(node["num_threshold"]), 5))
            flat["left"].append(0 if leaf else base + int(node["left"]))
            flat["right"].append(0 if leaf else base + int(node["right"]))
            flat["value"].append(round(float(node["value"]), 5) if leaf else 0.0)
    return {**flat, "offset": round(float(model._baseline_prediction.item()) + shift, 5)}


def write(weights: Mapping[str, Any], file: Path) -> None:
    """Write weights, one list a line, so that a change can be read."""
    lines = [f'"names": {json.dumps(weights["names"])}']
    for name in ("entailed", "contradicted"):
        inner = ",\n".join(f'  "{key}": {json.dumps(value)}' for key, value in weights[name].items())
        lines.append(f'"{name}": {{\n{inner}\n}}')
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _logit(share: float) -> float:
    share = min(max(share, 1e-4), 1 - 1e-4)
    return float(np.log(share / (1 - share)))
