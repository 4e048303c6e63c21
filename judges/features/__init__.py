"""Exact features of a claim and its evidence: repeated words, changed numbers, dropped negations, swapped roles. They
complement the model's scores."""

from judges.features.cascade_features import CascadeFeatures
from judges.features.claim_comparison import ClaimComparison, Features, comparison, compute
from judges.features.feature_extractor import FeatureExtractor
from judges.features.parsed_text import Prepared, prepare, together
from judges.features.probability_calibration import (
    NAMES,
    NAMES_OF_TWO,
    WORDED,
    Combined,
    combine,
    explain,
    spread,
    vector,
    weigh,
)
from judges.features.published_threshold import PublishedThresholdFeatures
from judges.features.quantity_features import as_written
from judges.features.word_overlap import Wording, measure_wording

__all__ = [
    "NAMES",
    "NAMES_OF_TWO",
    "WORDED",
    "CascadeFeatures",
    "ClaimComparison",
    "Combined",
    "FeatureExtractor",
    "Features",
    "Prepared",
    "PublishedThresholdFeatures",
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
