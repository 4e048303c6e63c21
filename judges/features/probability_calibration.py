"""Combines a model's probabilities with features into calibrated probabilities.

Two logistic regressions, whose weights are stored as data, estimate P(entailed) and, for claims that are not entailed,
P(contradicted). A third regression estimates P(entailed) from shared wording alone. Its estimate counts only if it is
low: evidence without the claim's words is unlikely to support the claim, but shared words prove nothing.

Exact features (a number that differs, a negation, a sentence repeated word for word) then shift the log-odds. For a
judge with two encoders, there are separate regressions, which also use the second encoder's probabilities.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from math import exp, log
from operator import attrgetter, mul
from typing import Final

from msgspec import Struct

from judges.features.claim_comparison import ClaimComparison, Features
from judges.features.parsed_text import Prepared, prepare
from judges.features.word_overlap import Wording
from judges.types import Probabilities

WEIGHTS_FILE: Final = "weights.json"
_FLOOR: Final = 1e-3
"""Probabilities are kept at least this far from 0 and 1, because a model's certainty beyond that is meaningless."""
_HEARD: Final = 2.5
"""The log-odds beyond which a model's certainty would outweigh any exact feature."""
_TOLD: Final = 0.5
_EXPLANATIONS: Final[tuple[tuple[str, str], ...]] = (
    ("quantity_differs", "A number, date or unit differs"),
    ("name_differs", "A name differs"),
    ("roles_swapped", "Two numbers, two compared things or two events are swapped"),
    ("polarity_differs", "The source says the opposite"),
    ("overclaims", "The source's statement is narrower or less certain"),
    ("verbatim", "The source says so in these words"),
    ("contained", "The source says so in nearly these words"),
)
MOVES: Final[Mapping[str, tuple[float, float]]] = {
    "verbatim": (4.5, -1.5),
    "contained": (3.2, -1.0),
    "quantity_differs": (-4.0, 4.0),
    "polarity_differs": (-3.5, 4.0),
    "roles_swapped": (-3.5, 4.0),
    "name_differs": (-3.0, 3.5),
    "overclaims": (-2.5, 0.0),
}
"""Maps each feature to the amounts that a value of 1 adds to the log-odds of "entailed" and of "contradicted", each
against "neither". Exact features are rare and have large weights. On held-out claims, ``overclaims`` adds little to the
model's own scores."""
_moving: Final = attrgetter(*MOVES)
_explaining: Final = attrgetter(*(name for name, _ in _EXPLANATIONS))
NAMES: Final = (
    "model_entailed",
    "model_contradicted",
    "best_entailed",
    "best_contradicted",
    "overlap",
)
"""The components of a feature vector, in order."""
NAMES_OF_TWO: Final = (*NAMES, "second_entailed", "second_contradicted")
"""The components of a feature vector for a judge with two encoders, in order."""
WORDED: Final = ("content", "sentence", "pairs")
"""The components of a wording vector, in order."""
_FEATURES: Final[Mapping[str, tuple[str, ...]]] = {
    "entailed": NAMES,
    "worded": WORDED,
    "contradicted": NAMES,
    "entailed_by_two": NAMES_OF_TWO,
    "contradicted_by_two": NAMES_OF_TWO,
}
"""The components that each regression uses."""
_REGRESSIONS: Final = {
    len(NAMES): ("entailed", "contradicted"),
    len(NAMES_OF_TWO): ("entailed_by_two", "contradicted_by_two"),
}
"""The regressions for a feature vector of each length."""


class Combined(Struct, frozen=True):
    """The probabilities of a pair, and a sentence about the strongest feature (None if there is no feature)."""

    probabilities: Probabilities
    explanation: str | None


class Regression(Struct, frozen=True):
    """The log-odds of one class against the rest: a bias, and a weight for each component of a vector."""

    bias: float
    weights: tuple[float, ...]

    def log_odds(self, vector: Sequence[float]) -> float:
        weighed: float = sum(map(mul, self.weights, vector))
        return self.bias + weighed


@cache
def regressions() -> Mapping[str, Regression]:
    """Load the package's regressions (the keys of ``_FEATURES``). Raises ValueError if they were fitted with different
    features."""
    data = json.loads(resources.files("judges.features").joinpath(WEIGHTS_FILE).read_text(encoding="utf-8"))
    if any(tuple(data[name]["weights"]) != names for name, names in _FEATURES.items()):
        raise ValueError(f"{WEIGHTS_FILE} was fitted with different features; fit it again")
    return {name: Regression(data[name]["bias"], tuple(data[name]["weights"].values())) for name in _FEATURES}


def combine(
    evidence: Prepared | str,
    claim: ClaimComparison | Prepared | str,
    model: Probabilities,
    best: tuple[float, float] | None = None,
) -> Combined:
    """Correct a model's probabilities for a pair with the features of its texts.

    Never raises. The time is proportional to the number of sentences in the evidence.

    Args:
        evidence: one window or several together, parsed by ``prepare`` or as text.
        claim: a sentence with its context, parsed or as text. If it is compared with several windows, its
            ``ClaimComparison``.
        model: the model's probabilities for the pair.
        best: the highest P(entailed) and P(contradicted) of any single window, if ``model`` covers several.
    """
    evidence = evidence if isinstance(evidence, Prepared) else prepare(evidence)
    claim = prepare(claim) if isinstance(claim, str) else claim
    held = claim if isinstance(claim, ClaimComparison) else ClaimComparison(claim)
    features = held.features(evidence)
    probabilities = weigh(vector(model, features, best), held.wording.measure(evidence), features)
    return Combined(probabilities, explain(features))


def vector(model: Probabilities, features: Features, best: tuple[float, float] | None = None) -> list[float]:
    """Build the input for the regressions, in the order of ``NAMES`` or, for two encoders, of ``NAMES_OF_TWO``."""
    found = [
        bounded_log_odds(model.entailed),
        bounded_log_odds(model.contradicted),
        *(best or (model.entailed, model.contradicted)),
        features.overlap,
    ]
    if model.second is None:
        return found
    return [*found, bounded_log_odds(model.second.entailed), bounded_log_odds(model.second.contradicted)]


def weigh(found: Sequence[float], wording: Wording, features: Features) -> Probabilities:
    """Compute probabilities with the regressions, then shift them by the exact features."""
    by = regressions()
    entailed, contradicted = _REGRESSIONS[len(found)]
    lacking = min(0.0, by["worded"].log_odds((wording.content, wording.sentence, wording.pairs)))
    return spread(by[entailed].log_odds(found) + lacking, by[contradicted].log_odds(found), features)


def spread(entailed: float, contradicted: float, features: Features) -> Probabilities:
    """Compute probabilities from the log-odds of "entailed" and of "contradicted if not entailed", shifted by
    features."""
    for_it = against = 0.0
    signals = _moving(features)
    if any(signals):
        for value, (to_entailed, to_contradicted) in zip(signals, MOVES.values(), strict=True):
            for_it += to_entailed * value
            against += to_contradicted * value
    if for_it < 0.0:
        entailed = min(entailed, _HEARD)
    if against > 0.0:
        contradicted = max(contradicted, -_HEARD)
    supported = _logistic(entailed + for_it)
    opposed = (1.0 - supported) * _logistic(contradicted + against)
    return Probabilities(supported, max(0.0, 1.0 - supported - opposed), opposed)


def _logistic(log_odds: float) -> float:
    return 1.0 / (1.0 + exp(-log_odds))


def bounded_log_odds(share: float) -> float:
    """Return the log-odds of a probability, which is first clipped slightly away from 0 and 1."""
    if share < _FLOOR:
        share = _FLOOR
    elif share > 1.0 - _FLOOR:
        share = 1.0 - _FLOOR
    return log(share / (1.0 - share))


def explain(features: Features) -> str | None:
    """Return a sentence that describes the strongest feature; differences take precedence. Return None if no feature is
    present."""
    values = _explaining(features)
    if max(values) < _TOLD:
        return None
    for value, (name, text) in zip(values, _EXPLANATIONS, strict=True):
        if value >= _TOLD:
            told = features.detail if name in ("quantity_differs", "name_differs") else None
            return f"{text}: {told}." if told else f"{text}."
    return None
