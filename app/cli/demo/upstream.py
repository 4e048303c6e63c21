"""A small OpenAI-compatible upstream with scripted answers. It is deterministic and needs neither an account nor a
network."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import count
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from app.cli.demo.content import ScriptedAnswer
from app.cli.demo.wire_formats import FORMATS, WORD, ScriptedReply, text_of

MODEL = "scripted-1"
NO_ANSWER = "I don't have a document that answers that."
_LETTERS = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_SHORTEST_SENTENCE = 4
"""The minimum number of words in a sentence. Shorter text in the prompt is treated as a heading or marker."""


class ScriptedUpstream:
    """Serves the four APIs that the gateway checks (streamed or not, with usage), and ``/v1/models``.

    The last user message selects one of ``answers``. If none matches, the upstream answers with the sentence from the
    rest of the prompt that shares the most words with the message. ``delay_s`` is the pause before each streamed word,
    in seconds. ``calls`` counts the replies.
    """

    def __init__(self, answers: Sequence[ScriptedAnswer], *, delay_s: float = 0.03) -> None:
        self._answers = {_key(entry.question): entry.answer for entry in answers}
        self._delay_s = delay_s
        self._ids = count(1)
        self.calls = 0
        self.app = Starlette(
            routes=[
                *(Route(path, self._reply, methods=["POST"]) for path in FORMATS),
                Route("/v1/models", self._models),
            ],
            exception_handlers={HTTPException: _error},
        )

    def answer(self, messages: Sequence[dict[str, Any]]) -> str:
        """Return the answer to ``messages``, which are in OpenAI's format with text content."""
        question = next((text_of(m) for m in reversed(messages) if m.get("role") == "user"), "")
        asked = _key(question)
        for known, answer in self._answers.items():
            if asked.endswith(known):
                return answer
        context = "\n".join(text_of(m) for m in messages if text_of(m) != question) or question
        return _closest_sentence(question, context) or NO_ANSWER

    async def _models(self, _: Request) -> Response:
        return JSONResponse(
            {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "groundlane-demo"}]}
        )

    async def _reply(self, request: Request) -> Response:
        self.calls += 1
        wire_format = FORMATS[request.url.path]
        body = orjson.loads(await request.body())
        messages = wire_format.messages(body)
        reply = ScriptedReply(
            id=f"demo-{next(self._ids)}",
            model=body.get("model") or MODEL,
            text=self.answer(messages),
            prompt_tokens=sum(len(WORD.findall(text_of(message))) for message in messages),
            wants_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        )
        if not body.get("stream"):
            return JSONResponse(wire_format.whole(reply))
        return StreamingResponse(self._paced(wire_format.stream(reply)), media_type="text/event-stream")

    async def _paced(self, frames: Iterator[bytes]) -> AsyncIterator[bytes]:
        for frame in frames:
            await asyncio.sleep(self._delay_s)
            yield frame


async def _error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = f"The demo's scripted upstream doesn't serve {request.method} {request.url.path}."
    body = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"error": body}, status_code=status)


def _key(question: str) -> str:
    return " ".join(_LETTERS.findall(question.casefold()))


def _closest_sentence(question: str, context: str) -> str | None:
    """Return the sentence of ``context`` that shares the most words with ``question``, or None. Text that doesn't end
    like a sentence is skipped, because document titles often share many words with the question."""
    wanted = set(_LETTERS.findall(question.casefold()))
    pieces = [piece.strip() for piece in _SENTENCE_END.split(context)]
    sentences = [each for each in pieces if each.endswith((".", "!", "?")) and each != question.strip()]
    shared = {
        each: len(wanted & set(words))
        for each in sentences
        if len(words := _LETTERS.findall(each.casefold())) >= _SHORTEST_SENTENCE
    }
    best = max(shared, key=shared.__getitem__, default=None)
    return best if best is not None and shared[best] else None
