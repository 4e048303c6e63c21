"""Plain completions for tests: an upstream's answers, and the text that a client received."""

import json
from typing import Any

from app.gateway.types import GatewayRequest, GatewayResponse
from app.protocols.documents import Limits
from app.protocols.openai_completions.adapter import CompletionsAdapter
from app.protocols.openai_completions.request import read_text
from tests.support.gateways.in_process_gateway import DOCUMENTS, Bench, frames

BLOCK = {"contradiction_action": "block", "abstention_response": "Please ask HR."}
STRIP: dict[str, Any] = {"unverifiable_action": "strip", "max_unverifiable_ratio": 1.0, "min_citations": 0}
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
HEAD = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m-1"}


def part(text: str, finish: str | None = None, index: int = 0, logprobs: Any = None, **fields: Any) -> dict[str, Any]:
    choice = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}
    return {**HEAD, "choices": [choice], **fields}


def whole(*texts: str, **fields: Any) -> dict[str, Any]:
    choices = [
        {"text": text, "index": index, "logprobs": None, "finish_reason": "stop", **fields}
        for index, text in enumerate(texts)
    ]
    return {**HEAD, "choices": choices, "usage": USAGE, "x_vendor": 1}


def logprobs(*tokens: str, offset: int = 0) -> dict[str, Any]:
    starts = [offset + len("".join(tokens[:position])) for position in range(len(tokens))]
    return {
        "tokens": list(tokens),
        "token_logprobs": [-float(position) for position in range(len(tokens))],
        "top_logprobs": [{token: -0.5} for token in tokens],
        "text_offset": starts,
    }


def tokens(text: str) -> list[str]:
    words = text.split(" ")
    return [words[0], *(f" {word}" for word in words[1:])]


async def ask(
    at: Bench, *, documents: Any = DOCUMENTS, prompt: Any = "How much leave?", **fields: Any
) -> GatewayResponse:
    body = {"model": "m", "prompt": prompt, "documents": documents, **fields}
    parsed = read_text(json.dumps(body).encode(), {}, Limits())
    return await at.gateway.respond(GatewayRequest(adapter=CompletionsAdapter(parsed.body), parsed=parsed, headers=[]))


async def unary(at: Bench, **fields: Any) -> dict[str, Any]:
    return dict(json.loads((await ask(at, **fields)).body))


async def stream(at: Bench, **fields: Any) -> list[dict[str, Any] | str]:
    reply = await ask(at, stream=True, **fields)
    assert reply.stream is not None
    data = b"".join([piece async for piece in reply.stream])
    await reply.stream.aclose()
    return frames(data)


def text_of(stream: list[dict[str, Any] | str], index: int = 0) -> str:
    return "".join(choice["text"] for choice in choices_of(stream) if choice["index"] == index)


def choices_of(stream: list[dict[str, Any] | str]) -> list[dict[str, Any]]:
    return [choice for frame in stream if isinstance(frame, dict) for choice in listed(frame)]


def listed(frame: dict[str, Any]) -> list[dict[str, Any]]:
    choices = frame["choices"]
    return choices if isinstance(choices, list) else []


def forwarded(at: Bench) -> dict[str, Any]:
    return dict(json.loads(at.forwarded[0].content))
