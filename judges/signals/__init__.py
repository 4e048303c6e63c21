"""Cheap, exact signals beside the model: words repeated, numbers changed, negations dropped, roles swapped."""

from judges.signals.combiner import NAMES, Combined, combine, explain, spread, vector, weigh
from judges.signals.features import Features, compute
from judges.signals.prepared import Prepared, prepare, together
from judges.signals.support import Support, measure_support

__all__ = [
    "NAMES",
    "Combined",
    "Features",
    "Prepared",
    "Support",
    "combine",
    "compute",
    "explain",
    "measure_support",
    "prepare",
    "spread",
    "together",
    "vector",
    "weigh",
]
