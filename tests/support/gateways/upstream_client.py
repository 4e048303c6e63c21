"""A handwritten server, and an httpx client over the upstream transport."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from app.config import Timeouts
from app.upstream.transport import AiohttpTransport

loops = pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"use_uvloop": False}), ("asyncio", {"use_uvloop": True})], ids=["asyncio", "uvloop"]
)
"""Runs a test on both event loops, because their transports differ."""


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    port: int = 0
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    serving: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def serving(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Yield a server that gives ``answer`` to every request and records disconnects."""
    server = Server()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        server.serving.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                server.heads.append(head)
                server.bodies.append(await _body(head.lower(), reader))
                await answer(writer)
                await writer.drain()
        server.gone.set()
        writer.transport.abort()
        server.serving.discard(writer)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for writer in server.serving:
            writer.transport.abort()
        await until(lambda: not server.serving)


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    if b"transfer-encoding: chunked" not in head:
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return await reader.readexactly(int(length or 0))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


def says(*parts: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)

    return answer


@asynccontextmanager
async def client(
    *, from_env: bool = False, tls: ssl.SSLContext | None = None, connections: int = 100, **seconds: float
) -> AsyncIterator[httpx.AsyncClient]:
    timeouts = Timeouts(**{"connect": 5.0, "first_byte": 5.0, "between_bytes": 5.0, **seconds})
    transport = AiohttpTransport(timeouts=timeouts, connections=connections, proxy_from_env=from_env, tls=tls)
    async with httpx.AsyncClient(transport=transport, trust_env=False) as opened:
        yield opened


async def until(true: Callable[[], bool]) -> None:
    """Wait for a condition to become true, for at most five seconds."""
    async with asyncio.timeout(5):
        for _ in iter(true, True):
            await asyncio.sleep(0.005)
