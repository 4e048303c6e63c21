"""Cheap, exact signals beside the model: words repeated, numbers changed, negations dropped, roles swapped."""

from judges.signals.combiner import NAMES, WORDED, Combined, combine, explain, spread, vector, weigh
from judges.signals.features import Comparison, Features, comparison, compute
from judges.signals.forms import as_written
from judges.signals.prepared import Prepared, prepare, together
from judges.signals.wording import Wording, measure_wording

__all__ = [
    "NAMES",
    "WORDED",
    "Combined",
    "Comparison",
    "Features",
    "Prepared",
    "Wording",
    "as_written",
    "combine",
    "comparison",
    "compute",
    "explain",
    "measure_wording",
    "prepare",
    "spread",
    "together",
    "vector",
    "weigh",
]
