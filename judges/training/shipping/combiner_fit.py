"""Fits the combiner of ``judges.features`` on claims about premises that were held out from the encoder's training."""

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

from judges.features import NAMES, NAMES_OF_TWO, WORDED, Features, spread
from judges.training.data import augmentation as augment
from judges.training.data.datasets import WRITTEN, Group, Row, Target
from judges.training.data.wording_prior import Worded
from judges.training.evaluation.judge_evaluation import THRESHOLDS, ClaimAndDocuments, Folders, look
from judges.training.evaluation.metrics import Flags, Floats

_LOGIC: Final = frozenset({"BreakingNLI", "ConjNLI", "HELP", "MED", "MoNLI"})
"""Data sets of sentence pairs that differ in one word. They teach the encoder logic but aren't representative of
replies and passages.
"""
Strings = npt.NDArray[np.str_]

_STRENGTH: Final = 0.1
"""The regularisation of the regressions (scikit-learn's C), chosen on held-out sources."""
_WORDING: Final = 0.5
"""The weight of the log-odds predicted from shared wording alone, chosen on held-out sources. A larger weight improves
the results for sources with answers and summaries but worsens them for the others."""
_FOLDS: Final = 5
_FEWEST: Final = 10
"""A source counts in the choice of a threshold if it has at least this many claims of each class."""
_SMOOTHED: Final = 5
"""The number of steps on either side over which a threshold's gain is averaged, so that the choice doesn't depend on a
few claims.
"""
_DISTRACTORS: Final = 3
_PER_GROUP: Final = 4
"""The maximum number of claims about the same premise."""
_WRITTEN: Final = 6
"""The number of handwritten claims in the sample, relative to other sources."""
_OF_WRITTEN: Final = 0.5
_OF_WRITTEN_BY_TWO: Final = 1.0
"""The weight of the handwritten claims, relative to all other sources together, for a judge with one encoder and with
two. In public data sets, a claim that shares a passage's words is usually true, but in an assistant's replies it may
not be. With two encoders, an equal weight improves the results on replies without worsening those on public data
sets."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The combiner's inputs for a set of claims: (claims, features), (claims, wording measures) and signals, with the
    targets and sources.
    """

    vectors: Floats
    wording: Floats
    signals: Sequence[Features]
    targets: npt.NDArray[np.int64]
    sources: Strings


def sample(folders: Folders, groups: Sequence[Group], *, most: int, seed: int = 7) -> Sample:
    """Compute the combiner's inputs with the encoders in ``folders``. They are for up to ``most`` claims in ``groups``,
    spread evenly over the sources, and for rule-generated claims about the same passages. Half of the claims get
    additional passages.
    """
    rng = random.Random(seed)
    claims: list[ClaimAndDocuments] = []
    rows: list[Row] = []
    for group, mine in _choose(groups, rng, most):
        other = rng.choice(groups)
        beside = [rng.choice(groups).premise for _ in range(rng.randint(1, _DISTRACTORS))]
        usable = augment.sentences(group.premise)
        made = augment.claims(usable, augment.sentences(other.premise), rng, count=min(4, len(usable)))
        for row in [*mine, *made]:
            texts = [group.premise, *beside] if rng.random() < 0.5 else [group.premise]
            rng.shuffle(texts)
            claims.append((texts, row.claim))
            rows.append(row)
    seen = look(folders, claims)
    return Sample(
        np.array([inputs.vector for inputs in seen]),
        np.array([[getattr(inputs.wording, name) for name in WORDED] for inputs in seen]),
        [inputs.features for inputs in seen],
        np.array([row.target for row in rows]),
        np.array([row.source for row in rows]),
    )


def _choose(groups: Sequence[Group], rng: random.Random, most: int) -> list[tuple[Group, list[Row]]]:
    """Choose groups in random order until each source has its share of rows. The rows of a group are drawn at random,
    because they may be ordered by label.
    """
    even = max(1, most // len({group.source for group in groups}))
    seen: Counter[str] = Counter()
    chosen: list[tuple[Group, list[Row]]] = []
    for group in rng.sample(list(groups), len(groups)):
        share = even * (_WRITTEN if group.source == WRITTEN else 1)
        rows = rng.sample(group.rows, max(0, min(_PER_GROUP, len(group.rows), share - seen[group.source])))
        if rows:
            seen[group.source] += len(rows)
            chosen.append((group, rows))
    return chosen


def fit(seen: Sample, worded: Worded) -> dict[str, Any]:
    """Return the combiner's weights, in the format that ``judges.features`` reads. The weights of the model's scores
    are fitted on held-out claims, and the weights of the wording on many more claims (``worded``). The weights for
    "entailed" are fitted on natural claims only. Rule-generated claims share the passage's wording whether they are
    true or not, so they would teach that wording is irrelevant. The threshold is chosen using the predictions for
    held-out sources, all with equal weight. The weights of the wording don't depend on the encoders, so they are
    returned only for a judge with one encoder.
    """
    by_two = seen.vectors.shape[1] == len(NAMES_OF_TWO)
    written = _OF_WRITTEN_BY_TWO if by_two else _OF_WRITTEN
    natural = _is_natural(seen.sources)
    not_entailed = (seen.targets == Target.NEUTRAL) | (seen.targets == Target.CONTRADICTED)
    yes = _entailed(seen, natural, written)
    contradicted = seen.targets == Target.CONTRADICTED
    no = _regress(seen.vectors, contradicted, seen.sources, not_entailed, even=False, written=written)
    unseen = _of_unseen_sources(seen, natural, worded, written)
    offset = _offset(unseen, no.log_odds(seen.vectors[natural]), seen, natural, written)
    if by_two:
        return {
            "entailed_by_two": _plain(yes, NAMES_OF_TWO, offset),
            "contradicted_by_two": _plain(no, NAMES_OF_TWO),
        }
    return {
        "entailed": _plain(yes, NAMES, offset),
        "worded": _plain(_by_wording(worded, _is_natural(worded.sources)), WORDED),
        "contradicted": _plain(no, NAMES),
    }


@dataclass(frozen=True, slots=True)
class Linear:
    """A regression on unscaled features."""

    bias: float
    weights: Floats

    def log_odds(self, vectors: Floats) -> Floats:
        return np.asarray(vectors @ self.weights + self.bias)


def _entailed(seen: Sample, rows: Flags, written: float) -> Linear:
    return _regress(seen.vectors, seen.targets == Target.ENTAILED, seen.sources, rows, even=True, written=written)


def _by_wording(worded: Worded, rows: Flags) -> Linear:
    found = _regress(worded.measures[:, : len(WORDED)], worded.entailed, worded.sources, rows, even=True)
    return Linear(_WORDING * found.bias, _WORDING * found.weights)


def _is_natural(sources: Strings) -> Flags:
    """Claims written or labelled by people, from data sets about passages."""
    return np.array([not source.startswith("made") and source not in _LOGIC for source in sources])


def _regress(
    features: Floats,
    positive: Flags,
    sources: Strings,
    rows: Flags,
    *,
    even: bool,
    written: float = _OF_WRITTEN,
) -> Linear:
    """Fit a logistic regression on scaled features, and convert it to one on unscaled features."""
    model: Any = make_pipeline(StandardScaler(), LogisticRegression(C=_STRENGTH))
    weights = even_weights(sources[rows], positive[rows] if even else None, written=written)
    scaler, regression = model.fit(features[rows], positive[rows], logisticregression__sample_weight=weights)
    found = regression.coef_[0] / scaler.scale_
    return Linear(float(regression.intercept_[0] - (found * scaler.mean_).sum()), found)


def _of_unseen_sources(seen: Sample, natural: Flags, worded: Worded, written: float) -> Floats:
    """Return the log-odds of the ``natural`` claims, including wording. Each is computed with regressions fitted
    without the claim's own source."""
    names = sorted(set(seen.sources[natural]))
    odds = np.zeros(len(seen.sources))
    for fold in range(_FOLDS):
        out = np.isin(seen.sources, names[fold::_FOLDS])
        model = _entailed(seen, natural & ~out, written)
        wording = _by_wording(worded, _is_natural(worded.sources) & ~np.isin(worded.sources, names[fold::_FOLDS]))
        held_out = natural & out
        odds[held_out] = model.log_odds(seen.vectors[held_out]) + np.minimum(
            0.0, wording.log_odds(seen.wording[held_out])
        )
    return odds[natural]


def _offset(yes: Floats, no: Floats, seen: Sample, natural: Flags, written: float) -> float:
    """Return the offset to add to the log-odds of "entailed" so that the shipped threshold best separates the two
    classes. The signals are taken into account.
    """
    signals = [signal for signal, kept in zip(seen.signals, natural, strict=True) if kept]
    combined = [spread(*scores) for scores in zip(yes.tolist(), no.tolist(), signals, strict=True)]
    entailed = np.array([probabilities.entailed for probabilities in combined])
    cut = best_cut(entailed, seen.targets[natural] == Target.ENTAILED, seen.sources[natural], written=written)
    return _logit(THRESHOLDS.entailment) - _logit(cut)


def even_weights(sources: Strings, positive: Flags | None, *, written: float = _OF_WRITTEN) -> Floats:
    """Return the weight of each claim. Each source is weighted by the square root of its number of claims, so that
    small sources matter and large ones don't dominate. Handwritten claims, if any, weigh ``written`` times as much as
    all others together. With ``positive``, both classes have equal weight.
    """
    counts = Counter(sources.tolist())
    weights = np.array([counts[source] ** -0.5 for source in sources.tolist()])
    by_hand = sources == WRITTEN
    if 0 < by_hand.sum() < len(by_hand):
        weights[by_hand] *= written * weights[~by_hand].sum() / weights[by_hand].sum()
    if positive is None:
        return weights
    yes, no = weights[positive].sum(), weights[~positive].sum()
    return np.asarray(weights * np.where(positive, (yes + no) / (2 * yes), (yes + no) / (2 * no)))


def best_cut(scores: Floats, positive: Flags, sources: Strings, *, written: float = _OF_WRITTEN) -> float:
    """Return the threshold with the highest balanced accuracy, averaged over sources with enough claims of both
    classes. Handwritten claims, if any, count ``written`` times as much as all others together.
    """
    masks = {name: (positive & (sources == name), ~positive & (sources == name)) for name in sorted(set(sources))}
    both = {name: mask for name, mask in masks.items() if min(mask[0].sum(), mask[1].sum()) >= _FEWEST}
    weights = [(len(both) - 1) * written if name == WRITTEN and len(both) > 1 else 1 for name in both]
    cuts = np.quantile(scores, np.linspace(0.05, 0.95, 91))
    accuracies = [
        [(scores[yes] >= cut).mean() + (scores[no] < cut).mean() for yes, no in both.values()] for cut in cuts
    ]
    gains = np.average(accuracies, axis=1, weights=weights)
    window = np.ones(2 * _SMOOTHED + 1)
    smooth = np.convolve(gains, window, "same") / np.convolve(np.ones(len(gains)), window, "same")
    return float(cuts[int(np.argmax(smooth))])


def _plain(model: Linear, names: Sequence[str], shift: float = 0.0) -> dict[str, Any]:
    return {
        "bias": round(model.bias + shift, 5),
        "weights": {name: round(float(weight), 5) for name, weight in zip(names, model.weights, strict=True)},
    }


def write(weights: Mapping[str, Any], file: Path) -> None:
    """Write the weights one per line, so that diffs are readable. Other weights in ``file`` are kept."""
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(json.dumps({**kept, **weights}, indent=2) + "\n", encoding="utf-8")


def _logit(share: float) -> float:
    share = min(max(share, 1e-4), 1 - 1e-4)
    return float(np.log(share / (1 - share)))
