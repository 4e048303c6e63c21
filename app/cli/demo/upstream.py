"""A small OpenAI-compatible upstream with scripted answers. It needs no account and no network, and is
deterministic."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from app.cli.demo.content import ScriptedAnswer

MODEL = "scripted-1"
_WORD = re.compile(r"\w+")
_PIECE = re.compile(r"(?<!\s)\s*+\S+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_SHORTEST_SENTENCE = 4
"""In words. Anything shorter in the prompt is a heading or a marker."""


class ScriptedUpstream:
    """Serves ``/v1/chat/completions`` (streamed or not, with usage) and ``/v1/models``.

    The last user message selects one of ``answers``. If it matches none, the answer is the sentence in the rest of the
    prompt that shares the most words with the message. ``delay_s`` is the pause before each streamed word, in seconds.
    ``calls`` counts the completions.
    """

    def __init__(self, answers: Sequence[ScriptedAnswer], *, delay_s: float = 0.03) -> None:
        self._answers = {_key(entry.question): entry.answer for entry in answers}
        self._delay_s = delay_s
        self._ids = count(1)
        self.calls = 0
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/v1/models", self._models),
            ]
        )

    def answer(self, messages: Sequence[dict[str, Any]]) -> str:
        """Return the answer to ``messages``, which are in OpenAI's format with text contents."""
        question = next((_text(m) for m in reversed(messages) if m.get("role") == "user"), "")
        asked = _key(question)
        for known, answer in self._answers.items():
            if asked.endswith(known):
                return answer
        context = "\n".join(_text(m) for m in messages if _text(m) != question) or question
        return _closest_sentence(question, context) or "I have no document to answer that from."

    async def _models(self, _: Request) -> Response:
        return JSONResponse(
            {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "groundlane-demo"}]}
        )

    async def _complete(self, request: Request) -> Response:
        self.calls += 1
        body = orjson.loads(await request.body())
        messages = body.get("messages") or []
        text = self.answer(messages)
        head = {
            "id": f"chatcmpl-demo-{next(self._ids)}",
            "created": int(datetime.now(UTC).timestamp()),
            "model": body.get("model") or MODEL,
        }
        prompt_tokens = sum(len(_PIECE.findall(_text(message))) for message in messages)
        completion_tokens = len(_PIECE.findall(text))
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }
        if not body.get("stream"):
            message = {"role": "assistant", "content": text, "refusal": None}
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
            return JSONResponse({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        frames = _frames(head, text, usage if wants_usage else None)
        return StreamingResponse(self._paced(frames), media_type="text/event-stream")

    async def _paced(self, frames: Iterator[bytes]) -> AsyncIterator[bytes]:
        for frame in frames:
            await asyncio.sleep(self._delay_s)
            yield frame


def _frames(head: dict[str, Any], text: str, usage: dict[str, int] | None) -> Iterator[bytes]:
    def frame(choices: list[dict[str, Any]], **more: Any) -> bytes:
        return (
            b"data: " + orjson.dumps({**head, "object": "chat.completion.chunk", "choices": choices, **more}) + b"\n\n"
        )

    def choice(delta: dict[str, Any], finish_reason: str | None = None) -> list[dict[str, Any]]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]

    yield frame(choice({"role": "assistant", "content": ""}))
    for piece in _PIECE.findall(text):
        yield frame(choice({"content": piece}))
    yield frame(choice({}, "stop"))
    if usage is not None:
        yield frame([], usage=usage)
    yield b"data: [DONE]\n\n"


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content if isinstance(part, dict))


def _key(question: str) -> str:
    return " ".join(_WORD.findall(question.casefold()))


def _closest_sentence(question: str, context: str) -> str | None:
    wanted = set(_WORD.findall(question.casefold()))
    sentences = [piece.strip() for piece in _SENTENCE_END.split(context)]
    candidates = [s for s in sentences if len(_WORD.findall(s)) >= _SHORTEST_SENTENCE]
    return max(candidates, key=lambda s: len(wanted & set(_WORD.findall(s.casefold()))), default=None)
