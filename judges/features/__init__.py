"""Exact features of a claim and its evidence that complement the model: repeated words, changed numbers, dropped
negations, swapped roles."""

from judges.features.calibration import NAMES, WORDED, Combined, combine, explain, spread, vector, weigh
from judges.features.claim_comparison import ClaimComparison, Features, comparison, compute
from judges.features.feature_extractor import FeatureExtractor
from judges.features.ngram_overlap import Wording, measure_wording
from judges.features.parsed_text import Prepared, prepare, together
from judges.features.unit_normalisation import as_written

__all__ = [
    "NAMES",
    "WORDED",
    "ClaimComparison",
    "Combined",
    "FeatureExtractor",
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
