"""The LLM judge: judges claims that the cross-encoder leaves undecided, and scores whole replies. It doesn't depend on
any HTTP framework, settings or policies. Keys come from an ``LlmKeySource``, and prices from a table.
"""

from judges.llm.judge import LlmJudge
from judges.llm.prices import PriceTable
from judges.llm.providers import PROVIDERS, Endpoint, LlmKeySource
from judges.llm.scoring_modes import LlmScoringMode

__all__ = ["PROVIDERS", "Endpoint", "LlmJudge", "LlmKeySource", "LlmScoringMode", "PriceTable"]
