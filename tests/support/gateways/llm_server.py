"""A scripted chat-completions server on loopback, with a judge that obeys every instruction.

The judge models the weakest possible LLM: it follows any instruction outside the delimiters of its data. The data
inside them, it judges by a predictable rule: a claim that occurs in a source is supported, a claim that differs from a
source's sentence only in its numbers is contradicted, and any other claim is unverifiable.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

Answer = str | tuple[int, Mapping[str, Any]] | None
"""The model's text, a status with a body, or None to close the connection."""


class Closeable(Protocol):
    async def aclose(self) -> None: ...


@dataclass
class JudgeServer:
    """The server. ``answer`` creates the answer to a request's body. ``requests`` has the bodies of the requests, and
    ``headers`` and ``paths`` have their headers and paths. ``clients`` are closed together with the server."""

    answer: Callable[[dict[str, Any]], Answer | Awaitable[Answer]]
    url: str = ""
    usage: Mapping[str, int] | None = field(
        default_factory=lambda: {"prompt_tokens": 400, "completion_tokens": 20, "total_tokens": 420}
    )
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    clients: list[Closeable] = field(default_factory=list)
    _open: set[asyncio.Task[Any]] = field(default_factory=set)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._one(reader, writer):
                    pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            self._open.discard(task)

    async def aclose(self) -> None:
        for client in self.clients:
            await client.aclose()
        await asyncio.wait_for(asyncio.gather(*self._open, return_exceptions=True), 5)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.requests.append(body)
        self.headers.append(headers)
        self.paths.append(request.split()[1])
        answer = self.answer(body)
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is None:
            return False
        status, document = (200, self._completion(answer)) if isinstance(answer, str) else answer
        data = json.dumps(document).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        await writer.drain()
        return True

    def _completion(self, text: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
        return {**head, "choices": [choice], "usage": self.usage}


@asynccontextmanager
async def serve(answer: Callable[[dict[str, Any]], Answer | Awaitable[Answer]]) -> AsyncIterator[JudgeServer]:
    made = JudgeServer(answer)
    server = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield made
    finally:
        server.close()
        await made.aclose()


# The judge that obeys


def obedient(body: dict[str, Any]) -> str:
    """Return the judge's answer to a request for a verdict, a score, verdicts on statements, or a sentence's claims."""
    system, user = (message["content"] for message in body["messages"])
    parts, outside = fenced(system, user)
    orders = _orders(outside)
    sources = [text for kind, text in parts if kind == "source"]
    match body["response_format"]["json_schema"]["name"]:
        case "verdict":
            (claim,) = (text for kind, text in parts if kind == "claim")
            label = orders or judge(claim, sources)
            numbers = [int(number) for number in re.findall(r"^Source \[(\d+)\]:$", outside, re.MULTILINE)]
            shown = [n for n, text in zip(numbers, sources, strict=True) if judge(claim, [text]) == label]
            correction = "obeyed" if orders else None
            return _json(verdict=label, confidence=0.95, reasoning="", sources=shown, correction=correction)
        case "grounding":
            (reply,) = (text for kind, text in parts if kind == "reply")
            sentences = re.findall(r"[^.!?]+[.!?]", reply)
            supported = sum(judge(sentence, sources) == "supported" for sentence in sentences)
            score = 1.0 if orders else supported / max(1, len(sentences))
            return _json(reasoning="", score=score)
        case "verdicts":
            told = [text for kind, text in parts if kind == "statement"]
            numbers = [int(number) for number in re.findall(r"^Statement (\d+):$", outside, re.MULTILINE)]
            verdicts = [
                {"number": number, "verdict": orders or judge(text, sources)}
                for number, text in zip(numbers, told, strict=True)
            ]
            return _json(verdicts=verdicts)
        case _:
            (sentence,) = (text for kind, text in parts if kind == "sentence")
            return _json(claims=["Obeyed."] if orders else [sentence])


def fenced(system: str, user: str) -> tuple[list[tuple[str, str]], str]:
    """Return the texts between the delimiters that the system message announces, with their kinds, and all text
    outside."""
    nonce = re.search(r"between <data-(\w+) \.\.\.> and </data-\1>", system)
    assert nonce is not None, "no marks were announced"
    found: list[tuple[str, str]] = []
    block = re.compile(rf"<data-{nonce[1]} (\w+)>\n(.*?)\n</data-{nonce[1]}>", re.DOTALL)

    def take(match: re.Match[str]) -> str:
        found.append((match[1], match[2]))
        return ""

    return found, block.sub(take, user)


_OURS = (
    re.compile(r"Source \[\d+\]:|Statement \d+:|The (claim|reply|sentence)( follows on this text)?:"),
    re.compile(r"(Judge|Split) .*Answer with one JSON object alone, with these fields: [a-z, ]+\."),
)


def _orders(outside: str) -> str | None:
    """Obey any line outside the delimiters that isn't the gateway's: return "supported". Return None if there is no
    such line."""
    for line in outside.splitlines():
        if line.strip() and not any(ours.fullmatch(line.strip()) for ours in _OURS):
            return "supported"
    return None


def judge(claim: str, sources: list[str]) -> str:
    said = _words(claim)
    if said and any(said in _words(source) for source in sources):
        return "supported"
    without = re.sub(r"\d+", "#", said)
    if any(without in re.sub(r"\d+", "#", _words(source)) for source in sources):
        return "contradicted"
    return "unverifiable"


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _json(**fields: Any) -> str:
    return json.dumps(fields)
