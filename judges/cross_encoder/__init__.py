"""Cross-encoders: one back end per file, wrappers for batching and caching, and code shared by the back ends."""

from judges.cross_encoder.cached_evidence import CachedEvidenceScorer
from judges.cross_encoder.factory import open_scorer, spec_languages
from judges.cross_encoder.onnx import OnnxScorer
from judges.cross_encoder.remote.http_scorer import HttpScorer
from judges.cross_encoder.sentence_transformers import SentenceTransformersScorer

__all__ = [
    "CachedEvidenceScorer",
    "HttpScorer",
    "OnnxScorer",
    "SentenceTransformersScorer",
    "open_scorer",
    "spec_languages",
]
