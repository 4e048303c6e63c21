"""A minimal Python proxy that parses everything it forwards. It is the baseline for the gateway's CPU time.

FastAPI receives the request, Pydantic validates it, aiohttp forwards it, and orjson parses and serializes the reply and
every chunk of a stream. The proxy has no keys and no policies, and records nothing.

    UPSTREAM=http://127.0.0.1:9100 uvicorn benchmarks.support.bare_proxy:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict

_URL = f"{os.environ.get('UPSTREAM', 'http://127.0.0.1:9100')}/v1/chat/completions"
_HEADERS = {"content-type": "application/json", "authorization": "Bearer none"}


class Message(BaseModel):
    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[Any] | None = None


class Completion(BaseModel):
    model_config = ConfigDict(extra="allow")

    model: str
    messages: list[Message]
    stream: bool = False


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(60)) as session:
        yield {"session": session}


app = FastAPI(lifespan=lifespan)


@app.post("/v1/chat/completions", response_model=None)
async def complete(completion: Completion, request: Request) -> Response:
    session: aiohttp.ClientSession = request.state.session
    body = orjson.dumps(completion.model_dump(exclude_unset=True))
    if completion.stream:
        reply = await session.post(_URL, data=body, headers=_HEADERS)
        return StreamingResponse(chunks(reply), status_code=reply.status, media_type="text/event-stream")
    async with session.post(_URL, data=body, headers=_HEADERS) as reply:
        read = orjson.loads(await reply.read())
    assert isinstance(read["choices"][0]["message"]["content"], str)
    return Response(orjson.dumps(read), status_code=reply.status, media_type="application/json")


async def chunks(reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    rest = b""
    try:
        async for data in reply.content.iter_any():
            *events, rest = (rest + data).split(b"\n\n")
            if events:
                yield b"".join([rewritten(event) + b"\n\n" for event in events])
    finally:
        reply.release()


def rewritten(event: bytes) -> bytes:
    if not event.startswith(b"data: {"):
        return event
    chunk = orjson.loads(event[6:])
    for choice in chunk["choices"]:
        choice["delta"].get("content")
    return b"data: " + orjson.dumps(chunk)
