"""The LLM judge: claims that the cross-encoder leaves open, and a score for a whole reply.

Knows no HTTP framework, no settings and no policy; keys come from a ``KeySource``, prices from a table.
"""

from judges.llm.judge import LlmJudge
from judges.llm.prices import PriceTable
from judges.llm.providers import PROVIDERS, Endpoint, KeySource
from judges.llm.scoring_modes import ScoringMode

__all__ = ["PROVIDERS", "Endpoint", "KeySource", "LlmJudge", "PriceTable", "ScoringMode"]
