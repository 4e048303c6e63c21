"""Haystack's ``OpenAIChatGenerator``: unknown fields are dropped, so an HTTP hook reads the header."""

from typing import Any

import httpx
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage, StreamingChunk
from haystack.utils import Secret
from openai import BadRequestError

from tests.system.clients.drivers.openai_sdk import refused
from tests.system.clients.scenario import MODEL, PROMPT, Question, Seen


def ask(question: Question) -> Seen:
    verdicts: list[str | None] = []
    pieces: list[StreamingChunk] = []

    def note(response: httpx.Response) -> None:
        verdicts.append(response.headers.get("x-groundlane-verdict"))

    options: dict[str, Any] = {"extra_body": question.extension} if question.extension else {}
    generator = OpenAIChatGenerator(
        model=MODEL,
        api_base_url=question.base_url,
        api_key=Secret.from_token("sk-client"),
        generation_kwargs=options,
        http_client_kwargs={"event_hooks": {"response": [note]}},
    )
    try:
        result = generator.run(
            [ChatMessage.from_user(PROMPT)], streaming_callback=pieces.append if question.stream else None
        )
    except BadRequestError as error:
        return refused(error)
    finally:
        generator.close()
    message = result["replies"][0]
    if question.stream:
        assert "".join(piece.content for piece in pieces) == message.text
    return Seen(
        text=message.text,
        finish=message.meta["finish_reason"],
        verdict=verdicts[-1],
        everything=repr((message, pieces)),
    )
