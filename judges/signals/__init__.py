"""Cheap, exact signals beside the model: words repeated, numbers changed, negations dropped, roles swapped."""

from judges.signals.combiner import NAMES, Combined, combine, explain, spread, vector, weigh
from judges.signals.features import Features, compute
from judges.signals.prepared import Prepared, prepare, together

__all__ = [
    "NAMES",
    "Combined",
    "Features",
    "Prepared",
    "combine",
    "compute",
    "explain",
    "prepare",
    "spread",
    "together",
    "vector",
    "weigh",
]
