"""Integrations with other libraries: ``langchain``, ``langchain_openai``, ``haystack``, ``llamaindex``, ``litellm`` and
``guardrails``. Each module imports only its own library.

All of them send the documents, with the source, age and relevance from their metadata, and the user's question, if it
is known, to ``POST /v1/grounding/check``. If no verdict is available, ``on_error`` decides whether the text is
delivered.
"""

from groundlane.integrations._guard import REPLACEMENT, BlockOn, Guard, OnError, UngroundedError, Verdict

__all__ = ["REPLACEMENT", "BlockOn", "Guard", "OnError", "UngroundedError", "Verdict"]
