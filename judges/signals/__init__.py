"""Cheap, exact signals beside the model: words repeated, numbers changed, negations dropped, roles swapped."""

from judges.signals.combiner import FLOOR, PRIOR, WEIGHTS, Combined, combine, explain, weigh
from judges.signals.features import Features, compute
from judges.signals.prepared import Prepared, prepare

__all__ = [
    "FLOOR",
    "PRIOR",
    "WEIGHTS",
    "Combined",
    "Features",
    "Prepared",
    "combine",
    "compute",
    "explain",
    "prepare",
    "weigh",
]
