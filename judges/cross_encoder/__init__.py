"""Cross-encoders: one file per back end, wrappers for batching and caching, and code that the back ends share."""

from judges.cross_encoder.cached_evidence import CachedEvidenceScorer
from judges.cross_encoder.factory import open_scorer, spec_languages, spec_stages
from judges.cross_encoder.onnx import OnnxScorer
from judges.cross_encoder.remote.http_scorer import HttpScorer
from judges.cross_encoder.sentence_transformers import SentenceTransformersScorer
from judges.cross_encoder.services.service_access import ServiceAccess

__all__ = [
    "CachedEvidenceScorer",
    "HttpScorer",
    "OnnxScorer",
    "SentenceTransformersScorer",
    "ServiceAccess",
    "open_scorer",
    "spec_languages",
    "spec_stages",
]
