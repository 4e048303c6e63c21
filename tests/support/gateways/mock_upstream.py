"""A scripted upstream: handwritten HTTP/1.1 on loopback, so that it can do things that no well-behaved server does.

It runs in a separate thread and is controlled from the test by plain calls. The order of steps is determined by events
(``Exchange.peer_closed``, ``Exchange.release``), not by pauses.
"""

import asyncio
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

EVENT_STREAM: Mapping[str, str] = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
JSON: Mapping[str, str] = {"content-type": "application/json"}
SEND_BUFFER = 64 * 1024
DEADLINE_S = 20.0
"""The time limit for things that should happen at once."""


class End(Enum):
    """What the upstream does after the last chunk."""

    CLEAN = "clean"
    RESET = "reset"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The upstream's answer to one request.

    ``chunks`` are written and flushed one at a time, ``pause_s`` apart. ``delays_s`` are additional delays before the
    chunks; missing ones are 0. With ``gated``, each chunk is sent only when the test releases it. With ``hold_head``,
    the status and headers are sent together with the first chunk. With ``chunked``, the body has chunked framing;
    otherwise, the end of the connection ends the body, unless ``headers`` have a content-length. If ``accept`` is
    False, the connection is closed before any byte is sent.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: dict(EVENT_STREAM))
    chunks: Sequence[bytes] = ()
    delays_s: Sequence[float] = ()
    pause_s: float = 0.002
    gated: bool = False
    hold_head: bool = False
    chunked: bool = True
    end: End = End.CLEAN
    accept: bool = True


def json_reply(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Return a reply with a whole JSON body and its content-length."""
    data = json.dumps(body, ensure_ascii=False).encode()
    merged = {**JSON, "content-length": str(len(data)), **(headers or {})}
    return Reply(status=status, headers=merged, chunks=(data,))


class Exchange:
    """A request that the upstream received, and the progress of the answer."""

    def __init__(self, method: str, path: str, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = list(headers)
        self.body = body
        self.written = 0
        self.peer_closed = threading.Event()
        """Set when the peer disconnects before the answer has ended."""
        self.ended = threading.Event()
        """Set when the answer has ended, however it ended."""
        self._progress = threading.Condition()
        self._loop = asyncio.get_running_loop()
        self._permits = asyncio.Semaphore(0)

    def header(self, name: str) -> str | None:
        """Return the value of a request header, given its name in any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def release(self, count: int = 1) -> None:
        """Release ``count`` more chunks of a gated answer."""
        for _ in range(count):
            self._loop.call_soon_threadsafe(self._permits.release)

    def wait_written(self, count: int) -> None:
        """Wait until ``count`` chunks have been sent."""
        with self._progress:
            if not self._progress.wait_for(lambda: self.written >= count, DEADLINE_S):
                raise AssertionError(f"the upstream wrote {self.written} chunks, not {count}")

    async def permit(self) -> None:
        await self._permits.acquire()

    def count_chunk(self) -> None:
        with self._progress:
            self.written += 1
            self._progress.notify_all()


class _Reader(asyncio.StreamReader):
    """A reader that detects when the peer closes or resets the connection, even if nothing is being read."""

    def __init__(self) -> None:
        super().__init__(limit=2**26, loop=asyncio.get_running_loop())
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.gone.set()


class ScriptedUpstream:
    """The server. ``script`` sets the answers, and ``exchanges`` has the requests received."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.open_connections = 0
        self._replies: deque[Reply] = deque()
        self._default = Reply()
        self._arrived = threading.Condition()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scripted-upstream", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> "ScriptedUpstream":
        self._thread.start()
        if not self._started.wait(DEADLINE_S):
            raise AssertionError("the scripted upstream did not start")
        return self

    def close(self) -> None:
        """Stop the server and close every connection to it."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)

    def script(self, *replies: Reply) -> None:
        """Reset the server. Answer the next requests with ``replies`` in turn, and every later one with the last of
        them."""
        with self._arrived:
            self.exchanges.clear()
            self._replies = deque(replies[:-1])
            self._default = replies[-1]

    def wait_exchange(self, index: int = 0) -> Exchange:
        """Return request number ``index`` since the last call of ``script``, as soon as it has arrived."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self.exchanges) > index, DEADLINE_S):
                raise AssertionError(f"the upstream got {len(self.exchanges)} requests, not {index + 1}")
            return self.exchanges[index]

    def wait_connections(self, count: int) -> None:
        """Wait until at most ``count`` connections are open."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self.open_connections <= count, DEADLINE_S):
                raise AssertionError(f"{self.open_connections} connections to the upstream are open, not {count}")

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await self._loop.create_server(
            lambda: asyncio.StreamReaderProtocol(_Reader(), self._connection), "127.0.0.1", 0
        )
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _count_connection(self, step: int) -> None:
        with self._arrived:
            self.open_connections += step
            self._arrived.notify_all()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        sock = writer.transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._count_connection(1)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while isinstance(reader, _Reader) and await self._exchange(reader, writer):
                    pass
        finally:
            self._count_connection(-1)
            writer.close()

    async def _exchange(self, reader: _Reader, writer: asyncio.StreamWriter) -> bool:
        """Read one request and answer it. Return whether the connection stays open for another."""
        exchange = await _read_request(reader)
        with self._arrived:
            reply = self._replies.popleft() if self._replies else self._default
            self.exchanges.append(exchange)
            self._arrived.notify_all()
        answer = asyncio.ensure_future(_answer(reply, exchange, writer))
        watch = asyncio.ensure_future(reader.gone.wait())
        try:
            await asyncio.wait({answer, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                exchange.peer_closed.set()
                return False
            if answer.exception() is not None:
                exchange.peer_closed.set()
                return False
            return answer.result()
        finally:
            answer.cancel()
            watch.cancel()
            await asyncio.gather(answer, watch, return_exceptions=True)
            exchange.ended.set()


async def _read_request(reader: asyncio.StreamReader) -> Exchange:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in head[1:] if line)]
    lower = {name.lower(): value for name, value in headers}
    if lower.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    else:
        body = await reader.readexactly(int(lower.get("content-length", "0")))
    return Exchange(method, path, headers, body)


async def _answer(reply: Reply, exchange: Exchange, writer: asyncio.StreamWriter) -> bool:
    if not reply.accept:
        _reset(writer)
        return False
    names = {name.lower() for name in reply.headers}
    framed = "content-length" in names
    chunked = reply.chunked and not framed
    head = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in reply.headers.items())]
    head.append(
        "transfer-encoding: chunked" if chunked else "connection: keep-alive" if framed else "connection: close"
    )
    preamble = ("\r\n".join(head) + "\r\n\r\n").encode("latin-1")
    if not reply.hold_head:
        writer.write(preamble)
        await writer.drain()
    for index, chunk in enumerate(reply.chunks):
        if reply.gated:
            await exchange.permit()
        if index < len(reply.delays_s) and reply.delays_s[index]:
            await asyncio.sleep(reply.delays_s[index])
        if reply.hold_head and index == 0:
            writer.write(preamble)
        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
        await writer.drain()
        exchange.count_chunk()
        await asyncio.sleep(reply.pause_s)
    match reply.end:
        case End.RESET:
            _reset(writer)
            return False
        case End.NEVER:
            await asyncio.Event().wait()
    if chunked:
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    return framed or chunked


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close the connection so that the peer sees a reset rather than an end."""
    sock = writer.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


_BOUND: list[socket.socket] = []


def closed_port() -> int:
    """Return a loopback port on which nothing listens. It stays bound, so that no other process listens there."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    _BOUND.append(bound)
    port: int = bound.getsockname()[1]
    return port
