"""LlamaIndex's ``OpenAILike``: documents in ``additional_kwargs``, the SDK's own reply in ``raw``."""

import asyncio
from typing import Any

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike
from openai import BadRequestError

from tests.system.clients.drivers.openai_sdk import refused
from tests.system.clients.scenario import MODEL, PROMPT, Question, Seen

MESSAGES = [ChatMessage(role="user", content=PROMPT)]


def ask(question: Question) -> Seen:
    llm = _model(question)
    try:
        return _streamed(list(llm.stream_chat(MESSAGES))) if question.stream else _whole(llm.chat(MESSAGES))
    except BadRequestError as error:
        return refused(error)


def ask_async(question: Question) -> Seen:
    llm = _model(question)

    async def run() -> Seen:
        if not question.stream:
            return _whole(await llm.achat(MESSAGES))
        return _streamed([piece async for piece in await llm.astream_chat(MESSAGES)])

    try:
        return asyncio.run(run())
    except BadRequestError as error:
        return refused(error)


def _model(question: Question) -> OpenAILike:
    return OpenAILike(
        model=MODEL,
        api_base=question.base_url,
        api_key="sk-client",
        is_chat_model=True,
        additional_kwargs={"extra_body": question.extension},
    )


def _whole(response: Any) -> Seen:
    grounding = (response.raw.model_extra or {}).get("grounding", {})
    return Seen(
        text=response.message.content,
        finish=response.raw.choices[0].finish_reason,
        verdict=grounding.get("verdict"),
        everything=repr(response),
    )


def _streamed(pieces: list[Any]) -> Seen:
    groundings = [(piece.raw.model_extra or {}).get("grounding", {}) for piece in pieces]
    finishes = [choice.finish_reason for piece in pieces for choice in piece.raw.choices]
    text = "".join(piece.delta or "" for piece in pieces)
    assert pieces[-1].message.content == text
    return Seen(
        text=text,
        finish=next((finish for finish in finishes if finish), None),
        verdict=next((found["verdict"] for found in groundings if "verdict" in found), None),
        everything=repr(pieces),
    )
