"""Integrations with other libraries: ``langchain``, ``langchain_openai``, ``haystack``, ``llamaindex``, ``litellm`` and
``guardrails``. Each module imports its library; the others do not.

All of them send ``documents`` with the source, age and relevance in their metadata to ``POST /v1/grounding/check``. If
there is no verdict, ``on_error`` decides whether the text is delivered.
"""

from groundlane.integrations._guard import REPLACEMENT, BlockOn, Guard, OnError, UngroundedError, Verdict

__all__ = ["REPLACEMENT", "BlockOn", "Guard", "OnError", "UngroundedError", "Verdict"]
