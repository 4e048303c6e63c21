"""Checks by the gateway for other libraries: ``langchain``, ``langchain_openai``, ``haystack``, ``llamaindex``,
``litellm`` and ``guardrails``, each a module that alone imports its library.

What they share: ``documents`` are sent with source, age and relevance as their metadata says; a verdict comes of
``POST /v1/grounding/check``; where none comes, ``on_error`` says whether the text may go out.
"""

from groundlane.integrations._guard import REPLACEMENT, BlockOn, Guard, OnError, UngroundedError, Verdict

__all__ = ["REPLACEMENT", "BlockOn", "Guard", "OnError", "UngroundedError", "Verdict"]
