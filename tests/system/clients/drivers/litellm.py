"""LiteLLM: ``extra_body`` carries the documents, unknown fields of the reply stay attributes."""

import asyncio
from typing import Any

import litellm
from litellm.exceptions import BadRequestError

from tests.system.clients.scenario import MODEL, PROMPT, Question, Refusal, Seen

litellm.suppress_debug_info = True


def ask(question: Question) -> Seen:
    try:
        answer = litellm.completion(**_arguments(question))
        return _streamed(list(answer)) if question.stream else _whole(answer)
    except BadRequestError as error:
        return _refused(error)


def ask_async(question: Question) -> Seen:
    async def run() -> Seen:
        answer = await litellm.acompletion(**_arguments(question))
        return _streamed([piece async for piece in answer]) if question.stream else _whole(answer)

    try:
        return asyncio.run(run())
    except BadRequestError as error:
        return _refused(error)


def _arguments(question: Question) -> dict[str, Any]:
    return {
        "model": f"openai/{MODEL}",
        "api_base": question.base_url,
        "api_key": "sk-client",
        "messages": [{"role": "user", "content": PROMPT}],
        "stream": question.stream,
        "extra_body": question.extension,
    }


def _refused(error: BadRequestError) -> Seen:
    return Seen(refusal=Refusal.of(error.status_code, error.body), everything=str(error))


def _whole(response: Any) -> Seen:
    return Seen(
        text=response.choices[0].message.content,
        finish=response.choices[0].finish_reason,
        verdict=getattr(response, "grounding", {}).get("verdict"),
        everything=response.model_dump_json(),
    )


def _streamed(pieces: list[Any]) -> Seen:
    groundings = [getattr(piece, "grounding", {}) for piece in pieces]
    choices = [choice for piece in pieces for choice in piece.choices]
    return Seen(
        text="".join(choice.delta.content or "" for choice in choices),
        finish=next((choice.finish_reason for choice in choices if choice.finish_reason), None),
        verdict=next((found["verdict"] for found in groundings if "verdict" in found), None),
        everything="".join(piece.model_dump_json() for piece in pieces),
    )
