"""Compares the CPU time of the upstream transport with that of plain aiohttp and httpx, alternating in one run.

    python -m benchmarks.transport [--requests 300] [--rounds 5]

A small upstream runs in a separate process on loopback. Prints the CPU time of this process per request. Wall-clock
time isn't printed, because it depends on other work on the machine.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import aiohttp
import httpx
import uvloop

from app.config import Timeouts
from app.upstream.transport import AiohttpTransport

CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
UPSTREAM = f"""
import asyncio
CHUNK = {CHUNK!r}
async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\\r\\n")[1:] if line)
            await reader.readexactly(int(fields.get(b"content-length", 0)))
            if b"/stream" in head:
                writer.write(b"HTTP/1.1 200 OK\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n")
                for _ in range(50):
                    writer.write(b"%x\\r\\n%s\\r\\n" % (len(CHUNK), CHUNK))
                    await writer.drain()
                    await asyncio.sleep(0.001)
                writer.write(b"0\\r\\n\\r\\n")
            else:
                body = b'{{"choices":[' + b" " * 1500 + b"]}}"
                writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: %d\\r\\n\\r\\n%s" % (len(body), body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


BODY = b"{}" * 500
Request = Callable[[], Awaitable[None]]


@asynccontextmanager
async def ours(url: str) -> AsyncIterator[Request]:
    transport, target = AiohttpTransport(timeouts=Timeouts()), httpx.URL(url)
    headers = [(b"content-type", b"application/json")]

    async def request() -> None:
        response = await transport.handle_async_request(
            httpx.Request("POST", target, headers=headers, stream=httpx.ByteStream(BODY))
        )
        async for _ in response.aiter_raw():
            pass
        await response.aclose()

    yield request
    await transport.aclose()


@asynccontextmanager
async def on_aiohttp(url: str) -> AsyncIterator[Request]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=256)) as session:

        async def request() -> None:
            async with session.post(url, data=BODY, headers={"content-type": "application/json"}) as response:
                async for _ in response.content.iter_any():
                    pass

        yield request


@asynccontextmanager
async def on_httpx(url: str) -> AsyncIterator[Request]:
    limits = httpx.Limits(max_connections=256, max_keepalive_connections=256)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:

        async def request() -> None:
            async with client.stream("POST", url, content=BODY) as response:
                async for _ in response.aiter_bytes():
                    pass

        yield request


CLIENTS: Mapping[str, Callable[[str], AbstractAsyncContextManager[Request]]] = {
    "ours": ours,
    "aiohttp": on_aiohttp,
    "httpx": on_httpx,
}


async def measure(client: str, url: str, count: int, width: int) -> float:
    """Return the CPU microseconds per request."""
    async with CLIENTS[client](url) as request:
        turn = asyncio.Semaphore(width)

        async def one() -> None:
            async with turn:
                await request()

        await asyncio.gather(*(one() for _ in range(width)))
        started = time.process_time()
        await asyncio.gather(*(one() for _ in range(count)))
        return (time.process_time() - started) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    upstream = subprocess.Popen([sys.executable, "-c", UPSTREAM], stdout=subprocess.PIPE, text=True)
    try:
        assert upstream.stdout is not None
        port = int(upstream.stdout.readline())
        print(f"{'CPU µs per request':<22}" + "".join(f"{name:>10}" for name in CLIENTS))
        for path, count in (("/plain", options.requests), ("/stream", max(16, options.requests // 5))):
            for width in (1, 16):
                rounds: dict[str, list[float]] = {name: [] for name in CLIENTS}
                for _ in range(options.rounds):
                    for name, found in rounds.items():
                        url = f"http://127.0.0.1:{port}{path}"
                        found.append(uvloop.run(measure(name, url, count, width)))
                medians = [statistics.median(found) for found in rounds.values()]
                print(f"{path} c={width:<14}" + "".join(f"{median:>10.0f}" for median in medians))
    finally:
        upstream.terminate()
        upstream.wait()


if __name__ == "__main__":
    main()
