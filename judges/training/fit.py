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
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from judges.signals import NAMES, Features, spread
from judges.training import augment
from judges.training.data import Group, Row, Target
from judges.training.judged import THRESHOLDS, Asked, look
from judges.training.metrics import Flags, Floats

_LOGIC: Final = frozenset({"BreakingNLI", "ConjNLI", "HELP", "MED", "MoNLI"})
"""Sets of sentence pairs about one word each: they teach the encoder logic, and say nothing of replies and passages."""
_STRENGTH: Final = 0.1
"""Of the regressions (scikit-learn's C), chosen on sources left out."""
_FOLDS: Final = 5
_FEWEST: Final = 5
"""Claims of either class that a source must have to count where a threshold is placed."""
_DISTRACTORS: Final = 3


@dataclass(frozen=True, slots=True)
class Sample:
    """What the judge sees of some claims: (claims, features), (claims, measures of wording) and signals; and their
    targets and sources."""

    vectors: Floats
    wording: Floats
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
    seen = look(folder, asked)
    return Sample(
        np.array([one.vector for one in seen]),
        np.array([one.wording for one in seen]),
        [one.features for one in seen],
        np.array([row.target for row in rows]),
        [row.source for row in rows],
    )


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
    """The combiner's weights, as ``judges.signals`` reads them.

    "Entailed" is fitted on claims that were found, not made: made ones share a passage's wording whether true or not,
    which would teach that wording tells nothing. The threshold is placed on what regressions say of sources that they
    have not seen, every source counting the same.
    """
    found = _found(seen)
    told = (seen.targets == Target.NEUTRAL) | (seen.targets == Target.CONTRADICTED)
    yes = _regress(seen, found, seen.targets == Target.ENTAILED, even=True)
    no = _regress(seen, told, seen.targets == Target.CONTRADICTED, even=False)
    unseen = _of_unseen_sources(seen, found)
    offset = _offset(unseen, no.decision_function(seen.vectors[found]), seen, found)
    return {"entailed": _plain(yes, offset), "contradicted": _plain(no, 0.0)}


def floor(seen: Sample, wording: Floats) -> Floats:
    """P(entailed) of claims by their wording alone: boosted trees that see no model and no signal. Its shipped
    threshold is where both classes of the sample are told apart best, as for the judge."""
    found = _found(seen)
    wanted = seen.targets[found] == Target.ENTAILED
    trees = HistGradientBoostingClassifier(
        max_iter=80, learning_rate=0.08, max_depth=3, min_samples_leaf=60, l2_regularization=5.0, random_state=1
    ).fit(seen.wording[found], wanted, sample_weight=_weights(seen, found, wanted))
    cut = _best_cut(trees.decision_function(seen.wording[found]), wanted, _sources(seen, found))
    odds = trees.decision_function(wording) - cut + _logit(THRESHOLDS.entailment)
    return np.asarray(1 / (1 + np.exp(-odds)))


def _found(seen: Sample) -> Flags:
    """Claims that people made or marked, of sets that are about passages."""
    return np.array([not source.startswith("made") and source not in _LOGIC for source in seen.sources])


def _sources(seen: Sample, of: Flags) -> npt.NDArray[np.str_]:
    return np.array(seen.sources)[of]


def _regress(seen: Sample, of: Flags, wanted: Flags, *, even: bool) -> Any:
    model = make_pipeline(StandardScaler(), LogisticRegression(C=_STRENGTH))
    weights = _weights(seen, of, wanted[of] if even else None)
    return model.fit(seen.vectors[of], wanted[of], logisticregression__sample_weight=weights)


def _of_unseen_sources(seen: Sample, found: Flags) -> Floats:
    """Log-odds of the ``found`` claims by regressions that have not seen their source."""
    sources = np.array(seen.sources)
    names = sorted(set(_sources(seen, found)))
    odds = np.zeros(len(sources))
    for fold in range(_FOLDS):
        out = np.isin(sources, names[fold::_FOLDS])
        model = _regress(seen, found & ~out, seen.targets == Target.ENTAILED, even=True)
        odds[found & out] = model.decision_function(seen.vectors[found & out])
    return odds[found]


def _offset(yes: Floats, no: Floats, seen: Sample, found: Flags) -> float:
    """What to add to the log-odds of "entailed" so that the shipped threshold cuts where both classes are told apart
    best, the signals included."""
    noticed = [one for one, kept in zip(seen.signals, found, strict=True) if kept]
    made = [spread(*one) for one in zip(yes.tolist(), no.tolist(), noticed, strict=True)]
    entailed = np.array([one.entailed for one in made])
    cut = _best_cut(entailed, seen.targets[found] == Target.ENTAILED, _sources(seen, found))
    return _logit(THRESHOLDS.entailment) - _logit(cut)


def _weights(seen: Sample, of: Flags, wanted: Flags | None) -> Floats:
    """A weight for each claim: a source counts by the square root of its claims, so that none is lost and none rules;
    with ``wanted``, both classes count the same."""
    sources = _sources(seen, of).tolist()
    counts = Counter(sources)
    weights = np.array([counts[source] ** -0.5 for source in sources])
    if wanted is None:
        return weights
    yes, no = weights[wanted].sum(), weights[~wanted].sum()
    return np.asarray(weights * np.where(wanted, (yes + no) / (2 * yes), (yes + no) / (2 * no)))


def _best_cut(scores: Floats, wanted: Flags, sources: npt.NDArray[np.str_]) -> float:
    """The score at which both classes are told apart best: balanced accuracy, the mean over sources that have enough of
    both."""
    masks = [(wanted & (sources == name), ~wanted & (sources == name)) for name in sorted(set(sources))]
    both = [(yes, no) for yes, no in masks if min(yes.sum(), no.sum()) >= _FEWEST]
    cuts = np.quantile(scores, np.linspace(0.05, 0.95, 91))
    gains = [np.mean([(scores[yes] >= cut).mean() + (scores[no] < cut).mean() for yes, no in both]) for cut in cuts]
    return float(cuts[int(np.argmax(gains))])


def _plain(model: Any, shift: float) -> dict[str, Any]:
    """A regression on scaled features as one on the features themselves."""
    scaler, regression = model[0], model[-1]
    weights = regression.coef_[0] / scaler.scale_
    bias = float(regression.intercept_[0] - (weights * scaler.mean_).sum()) + shift
    return {
        "bias": round(bias, 5),
        "weights": {name: round(float(weight), 5) for name, weight in zip(NAMES, weights, strict=True)},
    }


def write(weights: Mapping[str, Any], file: Path) -> None:
    """Write weights, one a line, so that a change can be read."""
    file.write_text(json.dumps(weights, indent=2) + "\n", encoding="utf-8")


def _logit(share: float) -> float:
    share = min(max(share, 1e-4), 1 - 1e-4)
    return float(np.log(share / (1 - share)))
