"""Cross-encoders that cache evidence: one encoder, or a small and a large one that read the same evidence."""

from judges.cross_encoder.cached_evidence.scorer import EVIDENCE_GRAPH, CachedEvidenceScorer
from judges.cross_encoder.cached_evidence.second_encoder import SecondEncoderScorer

__all__ = ["EVIDENCE_GRAPH", "CachedEvidenceScorer", "SecondEncoderScorer"]
