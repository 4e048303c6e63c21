"""The LLM judge: judges claims that the cross-encoder leaves open, and scores whole replies.

It depends on no HTTP framework, settings or policy; keys come from a ``LlmKeySource``, prices from a table.
"""

from judges.llm.judge import LlmJudge
from judges.llm.prices import PriceTable
from judges.llm.providers import PROVIDERS, Endpoint, LlmKeySource
from judges.llm.scoring_modes import LlmScoringMode

__all__ = ["PROVIDERS", "Endpoint", "LlmJudge", "LlmKeySource", "LlmScoringMode", "PriceTable"]
