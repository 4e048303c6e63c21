"""LangChain's ``ChatOpenAI``: unchanged, and with the few lines that keep the verdict."""

import asyncio
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from openai import BadRequestError

from tests.system.clients.drivers.openai_sdk import refused
from tests.system.clients.scenario import MODEL, PROMPT, Question, Seen


class GroundedChatOpenAI(ChatOpenAI):
    """Keeps the reply's ``grounding`` in ``response_metadata``; LangChain drops unknown fields."""

    def _create_chat_result(self, response: Any, generation_info: dict[str, Any] | None = None) -> ChatResult:
        result = super()._create_chat_result(response, generation_info)
        grounding = (response if isinstance(response, dict) else response.model_dump()).get("grounding")
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


def ask(question: Question) -> Seen:
    """Unchanged: ``extra_body`` carries the documents, the headers of a whole reply the verdict."""
    return _ask(_model(ChatOpenAI, question, include_response_headers=True), question)


def ask_grounded(question: Question) -> Seen:
    return _ask(_model(GroundedChatOpenAI, question), question)


def ask_grounded_async(question: Question) -> Seen:
    llm = _model(GroundedChatOpenAI, question)

    async def run() -> Seen:
        if not question.stream:
            return _seen(await llm.ainvoke(PROMPT))
        return _joined([piece async for piece in llm.astream(PROMPT)])

    try:
        return asyncio.run(run())
    except BadRequestError as error:
        return refused(error)


def _model(kind: type[ChatOpenAI], question: Question, **options: Any) -> ChatOpenAI:
    return kind(
        model=MODEL, base_url=question.base_url, api_key="sk-client", extra_body=question.extension or None, **options
    )


def _ask(llm: ChatOpenAI, question: Question) -> Seen:
    try:
        return _joined(list(llm.stream(PROMPT))) if question.stream else _seen(llm.invoke(PROMPT))
    except BadRequestError as error:
        return refused(error)


def _joined(pieces: list[AIMessageChunk]) -> Seen:
    message, *rest = pieces
    for piece in rest:
        message += piece
    return _seen(message)


def _seen(message: AIMessage) -> Seen:
    found = message.response_metadata
    verdict = (found.get("grounding") or {}).get("verdict") or found.get("headers", {}).get("x-groundlane-verdict")
    return Seen(
        text=str(message.content), finish=found["finish_reason"], verdict=verdict, everything=message.model_dump_json()
    )
