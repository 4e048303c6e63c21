"""LangChain's ``ChatOpenAI`` for the gateway. It sends documents with the request, and returns the verdict in
``response_metadata["grounding"]``. Needs ``langchain-openai``."""

import os
from collections.abc import Iterable
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_openai import ChatOpenAI

from groundlane._transport import DEFAULT_BASE_URL
from groundlane.integrations.langchain import documents_of

__all__ = ["ChatGroundlane"]


class ChatGroundlane(ChatOpenAI):
    """A ``ChatOpenAI`` that calls the gateway at ``base_url``. ``base_url`` and ``api_key`` default to
    ``GROUNDLANE_BASE_URL`` and ``GROUNDLANE_API_KEY``. The gateway checks a streamed reply as it arrives, and doesn't
    deliver blocked text."""

    def __init__(self, **options: Any) -> None:
        if not {"base_url", "openai_api_base"} & options.keys():
            url = os.environ.get("GROUNDLANE_BASE_URL") or DEFAULT_BASE_URL
            options["base_url"] = f"{url.rstrip('/').removesuffix('/v1')}/v1"
        if not {"api_key", "openai_api_key"} & options.keys():
            key = os.environ.get("GROUNDLANE_API_KEY") or os.environ.get("OPENAI_API_KEY")
            options["api_key"] = key or "none"  # The gateway may have the upstream's key.
        super().__init__(**options)

    def with_documents(
        self, retrieved: Iterable[Document | str], *, agent: str | None = None, **grounding: Any
    ) -> Runnable[Any, BaseMessage]:
        """Return this model with ``retrieved`` attached to each request. ``agent`` and the keyword arguments become
        fields of ``grounding`` in the request. With ``inject="system"``, for example, the gateway adds the documents to
        the prompt."""
        options = {"agent": agent, **grounding}
        body: dict[str, Any] = {"documents": documents_of(retrieved)}
        body["grounding"] = {name: value for name, value in options.items() if value is not None}
        return self.bind(extra_body=body)

    def _create_chat_result(self, response: Any, generation_info: dict[str, Any] | None = None) -> ChatResult:
        result = super()._create_chat_result(response, generation_info)
        grounding = (response if isinstance(response, dict) else response.model_dump()).get("grounding")
        if grounding is not None:
            for generation in result.generations:
                generation.message.response_metadata["grounding"] = grounding
        return result

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        piece = super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
        grounding = chunk.get("grounding") or {}
        if piece is not None and "verdict" in grounding:
            piece.message.response_metadata["grounding"] = grounding
        return piece
