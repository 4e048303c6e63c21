"""Model probabilities and signals into one set of probabilities: a log-linear combination whose weights are data."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from typing import Final

from judges.signals.features import Features, compute
from judges.signals.prepared import Prepared, prepare
from judges.types import Probabilities

WEIGHTS: Final[Mapping[str, tuple[float, float, float]]] = {
    "verbatim": (4.5, 0.0, -1.5),
    "contained": (3.2, 0.0, -1.0),
    "covered": (1.2, 0.0, 0.0),
    "quantity_differs": (-4.0, 0.0, 4.0),
    "polarity_differs": (-3.5, 0.0, 4.0),
    "roles_swapped": (-3.5, 0.0, 4.0),
    "name_differs": (-3.0, 0.0, 3.5),
    "quantity_absent": (-0.8, 0.0, 0.0),
    "name_absent": (-0.3, 0.0, 0.0),
    "overclaims": (-1.4, 0.0, 0.0),
}
"""What each signal at 1 adds to the log-odds of (entailed, neutral, contradicted)."""
PRIOR: Final = Probabilities(0.15, 0.75, 0.10)
"""Stands in where no model has read the pair."""
FLOOR: Final = 0.02
"""No model is so sure that a signal cannot be heard."""
_TOLD: Final = 0.5
_EXPLANATIONS: Final[tuple[tuple[str, str], ...]] = (
    ("quantity_differs", "A number, date or unit differs"),
    ("name_differs", "A name differs"),
    ("roles_swapped", "What stands on either side of a comparison or an order in time has changed places"),
    ("polarity_differs", "The source says the opposite"),
    ("overclaims", "The source says it less widely or less surely"),
    ("verbatim", "The source says so in these words"),
    ("contained", "The source says so in nearly these words"),
)


@dataclass(frozen=True, slots=True)
class Combined:
    """The probabilities of a pair after the signals, and in a sentence what moved them (None: the model alone)."""

    probabilities: Probabilities
    explanation: str | None


def combine(evidence: Prepared | str, claim: Prepared | str, model: Probabilities | None) -> Combined:
    """Weigh what a model holds of a pair with what can be seen in the texts.

    ``evidence`` is a window of a few sentences, ``claim`` a sentence, after those that it needs to be understood: each
    as ``prepare`` returns it (do so once for a text) or as plain text. ``model`` is None where none has read the pair.
    Never raises; the time taken grows with the number of sentences in the window.
    """
    prepared = evidence if isinstance(evidence, Prepared) else prepare(evidence)
    features = compute(prepared, claim if isinstance(claim, Prepared) else prepare(claim))
    return Combined(probabilities=weigh(features, model or PRIOR), explanation=explain(features))


def weigh(features: Features, model: Probabilities) -> Probabilities:
    """The model's probabilities moved by the features; unmoved where all of them are 0."""
    entailed = neutral = contradicted = 0.0
    for name, (to_entailed, to_neutral, to_contradicted) in WEIGHTS.items():
        if value := getattr(features, name):
            entailed += to_entailed * value
            neutral += to_neutral * value
            contradicted += to_contradicted * value
    if entailed == neutral == contradicted == 0.0:
        return model
    odds = (
        exp(entailed + log(max(model.entailed, FLOOR))),
        exp(neutral + log(max(model.neutral, FLOOR))),
        exp(contradicted + log(max(model.contradicted, FLOOR))),
    )
    total = sum(odds)
    return Probabilities(odds[0] / total, odds[1] / total, odds[2] / total)


def explain(features: Features) -> str | None:
    """The strongest thing seen, in words; differences before agreement."""
    for name, text in _EXPLANATIONS:
        if getattr(features, name) >= _TOLD:
            told = features.detail if name in ("quantity_differs", "name_differs") else None
            return f"{text}: {told}." if told else f"{text}."
    return None
