"""Fits the combiner of ``judges.features`` on what the whole judge sees of premises that the encoder has not seen."""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from judges.features import NAMES, WORDED, Features, spread
from judges.training.data import augmentation as augment
from judges.training.data.datasets import WRITTEN, Group, Row, Target
from judges.training.data.wording_prior import Worded
from judges.training.evaluation.judge_evaluation import THRESHOLDS, Asked, look
from judges.training.evaluation.metrics import Flags, Floats

_LOGIC: Final = frozenset({"BreakingNLI", "ConjNLI", "HELP", "MED", "MoNLI"})
"""Sets of sentence pairs about one word each: they teach the encoder logic, and say nothing of replies and passages."""
Strings = npt.NDArray[np.str_]

_STRENGTH: Final = 0.1
"""Of the regressions (scikit-learn's C), chosen on sources left out."""
_WORDING: Final = 0.5
"""Share of its log-odds by which wording is heard, chosen on sources left out: more would give those whose claims are
answers and summaries more, and take it from the others."""
_FOLDS: Final = 5
_FEWEST: Final = 10
"""Claims of either class that a source must have to count where a threshold is placed."""
_SMOOTHED: Final = 5
"""Steps to either side over which the gain of a threshold is averaged, so that it does not hang on a few claims."""
_DISTRACTORS: Final = 3
_WRITTEN: Final = 6
"""How often the written claims have a source's share: they count for more than one where the threshold is placed."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What the judge sees of some claims: (claims, features), (claims, measures of wording) and signals; and their
    targets and sources."""

    vectors: Floats
    wording: Floats
    signals: Sequence[Features]
    targets: npt.NDArray[np.int64]
    sources: Strings


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
        np.array([[getattr(one.wording, name) for name in WORDED] for one in seen]),
        [one.features for one in seen],
        np.array([row.target for row in rows]),
        np.array([row.source for row in rows]),
    )


def _choose(groups: Sequence[Group], rng: random.Random, most: int) -> list[tuple[Group, list[Row]]]:
    """Groups in random order, with rows of each source until it has its share."""
    even = max(1, most // len({group.source for group in groups}))
    seen: Counter[str] = Counter()
    chosen: list[tuple[Group, list[Row]]] = []
    for group in rng.sample(list(groups), len(groups)):
        share = even * (_WRITTEN if group.source == WRITTEN else 1)
        rows = list(group.rows)[: min(4, share - seen[group.source])]
        if rows:
            seen[group.source] += len(rows)
            chosen.append((group, rows))
    return chosen


def fit(seen: Sample, worded: Worded) -> dict[str, Any]:
    """The combiner's weights, as ``judges.features`` reads them.

    What the model says is weighed by claims that it has not seen, wording by many more (``worded``); "entailed" by
    claims that were found, not made: made ones share a passage's wording whether true or not, which would teach that
    wording tells nothing. The threshold is placed on what these say of sources that they have not seen, every source
    counting the same.
    """
    found = _found(seen.sources)
    told = (seen.targets == Target.NEUTRAL) | (seen.targets == Target.CONTRADICTED)
    yes = _entailed(seen, found)
    no = _regress(seen.vectors, seen.targets == Target.CONTRADICTED, seen.sources, told, even=False)
    unseen = _of_unseen_sources(seen, found, worded)
    offset = _offset(unseen, no.log_odds(seen.vectors[found]), seen, found)
    return {
        "entailed": _plain(yes, NAMES, offset),
        "worded": _plain(_by_wording(worded, _found(worded.sources)), WORDED),
        "contradicted": _plain(no, NAMES),
    }


@dataclass(frozen=True, slots=True)
class Linear:
    """A regression on features as they are."""

    bias: float
    weights: Floats

    def log_odds(self, vectors: Floats) -> Floats:
        return np.asarray(vectors @ self.weights + self.bias)


def _entailed(seen: Sample, of: Flags) -> Linear:
    return _regress(seen.vectors, seen.targets == Target.ENTAILED, seen.sources, of, even=True)


def _by_wording(worded: Worded, of: Flags) -> Linear:
    found = _regress(worded.measures[:, : len(WORDED)], worded.entailed, worded.sources, of, even=True)
    return Linear(_WORDING * found.bias, _WORDING * found.weights)


def _found(sources: Strings) -> Flags:
    """Claims that people made or marked, of sets that are about passages."""
    return np.array([not source.startswith("made") and source not in _LOGIC for source in sources])


def _regress(features: Floats, wanted: Flags, sources: Strings, of: Flags, *, even: bool) -> Linear:
    """Logistic regression on scaled features, as one on the features themselves."""
    model: Any = make_pipeline(StandardScaler(), LogisticRegression(C=_STRENGTH))
    weights = even_weights(sources[of], wanted[of] if even else None)
    scaler, regression = model.fit(features[of], wanted[of], logisticregression__sample_weight=weights)
    found = regression.coef_[0] / scaler.scale_
    return Linear(float(regression.intercept_[0] - (found * scaler.mean_).sum()), found)


def _of_unseen_sources(seen: Sample, found: Flags, worded: Worded) -> Floats:
    """Log-odds of the ``found`` claims, wording included, by regressions that have not seen their source."""
    names = sorted(set(seen.sources[found]))
    odds = np.zeros(len(seen.sources))
    for fold in range(_FOLDS):
        out = np.isin(seen.sources, names[fold::_FOLDS])
        model = _entailed(seen, found & ~out)
        wording = _by_wording(worded, _found(worded.sources) & ~np.isin(worded.sources, names[fold::_FOLDS]))
        asked = found & out
        odds[asked] = model.log_odds(seen.vectors[asked]) + np.minimum(0.0, wording.log_odds(seen.wording[asked]))
    return odds[found]


def _offset(yes: Floats, no: Floats, seen: Sample, found: Flags) -> float:
    """What to add to the log-odds of "entailed" so that the shipped threshold cuts where both classes are told apart
    best, the signals included."""
    noticed = [one for one, kept in zip(seen.signals, found, strict=True) if kept]
    made = [spread(*one) for one in zip(yes.tolist(), no.tolist(), noticed, strict=True)]
    entailed = np.array([one.entailed for one in made])
    cut = best_cut(entailed, seen.targets[found] == Target.ENTAILED, seen.sources[found])
    return _logit(THRESHOLDS.entailment) - _logit(cut)


def even_weights(sources: Strings, wanted: Flags | None) -> Floats:
    """A weight for each claim: a source counts by the square root of its claims, so that none is lost and none rules;
    with ``wanted``, both classes count the same."""
    counts = Counter(sources.tolist())
    weights = np.array([counts[source] ** -0.5 for source in sources.tolist()])
    if wanted is None:
        return weights
    yes, no = weights[wanted].sum(), weights[~wanted].sum()
    return np.asarray(weights * np.where(wanted, (yes + no) / (2 * yes), (yes + no) / (2 * no)))


def best_cut(scores: Floats, wanted: Flags, sources: Strings) -> float:
    """The score at which both classes are told apart best: balanced accuracy, the mean over sources that have enough of
    both. Written claims, where they are among them, count a third of all others: in public sets a claim that shares a
    passage's words is mostly true, in an assistant's replies it need not be."""
    masks = {name: (wanted & (sources == name), ~wanted & (sources == name)) for name in sorted(set(sources))}
    both = {name: mask for name, mask in masks.items() if min(mask[0].sum(), mask[1].sum()) >= _FEWEST}
    weights = [(len(both) - 1) / 3 if name == WRITTEN and len(both) > 1 else 1 for name in both]
    cuts = np.quantile(scores, np.linspace(0.05, 0.95, 91))
    told = [[(scores[yes] >= cut).mean() + (scores[no] < cut).mean() for yes, no in both.values()] for cut in cuts]
    gains = np.average(told, axis=1, weights=weights)
    window = np.ones(2 * _SMOOTHED + 1)
    smooth = np.convolve(gains, window, "same") / np.convolve(np.ones(len(gains)), window, "same")
    return float(cuts[int(np.argmax(smooth))])


def _plain(model: Linear, names: Sequence[str], shift: float = 0.0) -> dict[str, Any]:
    return {
        "bias": round(model.bias + shift, 5),
        "weights": {name: round(float(weight), 5) for name, weight in zip(names, model.weights, strict=True)},
    }


def write(weights: Mapping[str, Any], file: Path) -> None:
    """Write weights, one a line, so that a change can be read."""
    file.write_text(json.dumps(weights, indent=2) + "\n", encoding="utf-8")


def _logit(share: float) -> float:
    share = min(max(share, 1e-4), 1 - 1e-4)
    return float(np.log(share / (1 - share)))
