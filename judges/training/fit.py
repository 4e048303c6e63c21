"""Fits the combiner of ``judges.signals`` on what the whole judge sees of premises that the encoder has not seen."""

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

from judges.signals import NAMES, Features, spread
from judges.training import augment
from judges.training.data import Group, Row, Target
from judges.training.judged import THRESHOLDS, Asked, look
from judges.training.metrics import Flags, Floats

_MOST_FALSE_BLOCKS: Final = 0.01
"""Share of supported claims of the fitted sample that may be called contradicted."""
_DISTRACTORS: Final = 3
_RAISES: Final = [1, -1, 1, -1, *([0] * (len(NAMES) - 4))]
"""Which way the model's own probabilities may move that of "entailed": the surer the model, the surer the judge."""
_WORDING: Final = [place for place, name in enumerate(NAMES) if name.startswith("support_")]


@dataclass(frozen=True, slots=True)
class Sample:
    """What the judge sees of some claims: (claims, features) and signals; and their targets and sources."""

    vectors: Floats
    signals: Sequence[Features]
    targets: npt.NDArray[np.int64]
    sources: Sequence[str]


def sample(folder: Path, groups: Sequence[Group], *, most: int, seed: int = 7) -> Sample:
    """Look, with the model of ``folder``, at up to ``most`` claims of ``groups``, sources evenly, and at claims made of
    their sentences; half of them with other passages beside their own."""
    rng = random.Random(seed)
    asked: list[Asked] = []
    rows: list[Row] = []
    for group, mine in _choose(groups, rng, most):
        other = rng.choice(groups)
        beside = [rng.choice(groups).premise for _ in range(rng.randint(1, _DISTRACTORS))]
        usable = augment.sentences(group.premise)
        made = augment.claims(usable, augment.sentences(other.premise), rng, count=min(4, len(usable)))
        for row in [*mine, *made]:
            texts = [group.premise, *beside] if rng.random() < 0.5 else [group.premise]
            rng.shuffle(texts)
            asked.append((texts, row.claim))
            rows.append(row)
    vectors, seen = look(folder, asked)
    return Sample(vectors, seen, np.array([row.target for row in rows]), [row.source for row in rows])


def _choose(groups: Sequence[Group], rng: random.Random, most: int) -> list[tuple[Group, list[Row]]]:
    """Groups in random order, with rows of each source until it has its share."""
    share = max(1, most // len({group.source for group in groups}))
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
    balance = _balance(seen.sources)
    entailed = seen.targets == Target.ENTAILED
    told = seen.targets != Target.OTHER
    # Claims made from a passage share its wording, true or not: they would teach that wording tells nothing, or all.
    found = np.array([not source.startswith("made") for source in seen.sources])
    yes = _boost(
        seen.vectors[found], entailed[found], balance[found] * _evenly(entailed[found], balance[found]), _RAISES
    )
    no = _boost(seen.vectors[told], seen.targets[told] == Target.CONTRADICTED, balance[told], [-one for one in _RAISES])
    offsets = _offsets(yes.decision_function(seen.vectors), no.decision_function(seen.vectors), seen, balance)
    return {"names": list(NAMES), "entailed": _trees(yes, offsets[0]), "contradicted": _trees(no, offsets[1])}


def floor(seen: Sample, vectors: Floats) -> Floats:
    """P(entailed) of claims by their wording alone: trees fitted like the combiner's that see no model and no signal.
    Its shipped threshold is where both classes of the sample are told apart best, as for the judge."""
    balance = _balance(seen.sources)
    entailed = seen.targets == Target.ENTAILED
    trees = _boost(seen.vectors[:, _WORDING], entailed, balance * _evenly(entailed, balance))
    cut = _best_cut(trees.decision_function(seen.vectors[:, _WORDING]), entailed, balance)
    odds = trees.decision_function(vectors[:, _WORDING]) - cut + _logit(THRESHOLDS.entailment)
    return np.asarray(1 / (1 + np.exp(-odds)))


def _offsets(yes: Floats, no: Floats, seen: Sample, balance: Floats) -> tuple[float, float]:
    """What to add to both log-odds so that the shipped thresholds cut where they should: entailed where both classes
    are told apart best, contradicted where no more than a few supported claims are blocked."""
    entailed = seen.targets == Target.ENTAILED
    balance = np.where([source.startswith("made") for source in seen.sources], balance / 2, balance)
    shift_yes = shift_no = 0.0
    for _ in range(8):
        made = [
            spread(*one) for one in zip((yes + shift_yes).tolist(), (no + shift_no).tolist(), seen.signals, strict=True)
        ]
        cut = _best_cut(np.array([one.entailed for one in made]), entailed, balance)
        against = np.array([one.contradicted for one in made])[entailed]
        shift_yes += _logit(THRESHOLDS.entailment) - _logit(cut)
        shift_no += _logit(THRESHOLDS.contradiction) - _logit(float(np.quantile(against, 1 - _MOST_FALSE_BLOCKS)))
        shift_no = min(shift_no, _MOST_RAISED)
    return shift_yes, shift_no


_MOST_RAISED: Final = 1.0
"""A contradiction is not made likelier than this much more than the trees say, however few claims it would block."""


def _boost(
    vectors: Floats, wanted: Flags, weights: Floats, raises: Sequence[int] | None = None
) -> HistGradientBoostingClassifier:
    model = HistGradientBoostingClassifier(
        max_iter=80,
        learning_rate=0.08,
        max_depth=3,
        min_samples_leaf=60,
        l2_regularization=5.0,
        monotonic_cst=raises,
        random_state=1,
    )
    return model.fit(vectors, wanted, sample_weight=weights)


def _balance(sources: Sequence[str]) -> Floats:
    """A weight for each row: a source counts by the square root of its rows, so that none is lost and none rules."""
    counts = Counter(sources)
    return np.array([counts[source] ** -0.5 for source in sources])


def _evenly(wanted: Flags, weights: Floats) -> Floats:
    """Weights that make both classes weigh the same."""
    yes, no = weights[wanted].sum(), weights[~wanted].sum()
    return np.where(wanted, (yes + no) / (2 * yes), (yes + no) / (2 * no))


def _best_cut(scores: Floats, wanted: Flags, weights: Floats) -> float:
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
    parts = [f'"names": {json.dumps(weights["names"])}']
    for name in ("entailed", "contradicted"):
        inner = ",\n".join(f'  "{key}": {json.dumps(value)}' for key, value in weights[name].items())
        parts.append(f'"{name}": {{\n{inner}\n}}')
    file.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def _logit(share: float) -> float:
    share = min(max(share, 1e-4), 1 - 1e-4)
    return float(np.log(share / (1 - share)))
