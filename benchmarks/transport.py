"""CPU of the upstream client: httpx on its own transport against httpx on ours (aiohttp), alternating in one run.

    python -m benchmarks.transport [--requests 300] [--rounds 5]

A small upstream runs in a process of its own on loopback. Prints the CPU time of this process a request, and the ratio;
wall-clock time is left out, since other work on the machine moves it. Bounded by requests and rounds.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import httpx

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


def own(limits: httpx.Limits) -> httpx.AsyncBaseTransport:
    return httpx.AsyncHTTPTransport(limits=limits)


def on_aiohttp(limits: httpx.Limits) -> httpx.AsyncBaseTransport:
    return AiohttpTransport(timeouts=Timeouts(), connections=limits.max_connections or 0)


async def measure(make: Callable[[httpx.Limits], httpx.AsyncBaseTransport], url: str, count: int, width: int) -> float:
    """CPU microseconds a request."""
    limits = httpx.Limits(max_connections=256, max_keepalive_connections=256)
    async with httpx.AsyncClient(transport=make(limits), timeout=60) as client:
        turn = asyncio.Semaphore(width)

        async def one() -> None:
            async with turn, client.stream("POST", url, content=b"{}" * 500) as response:
                async for _ in response.aiter_bytes():
                    pass

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
        print(f"{'':<22}{'httpx µs':>12}{'on aiohttp µs':>16}{'ratio':>8}")
        for path, count in (("/plain", options.requests), ("/stream", max(16, options.requests // 5))):
            for width in (1, 16):
                rounds: dict[str, list[float]] = {"own": [], "aiohttp": []}
                for _ in range(options.rounds):
                    for name, make in (("own", own), ("aiohttp", on_aiohttp)):
                        url = f"http://127.0.0.1:{port}{path}"
                        rounds[name].append(asyncio.run(measure(make, url, count, width)))
                mine, theirs = statistics.median(rounds["own"]), statistics.median(rounds["aiohttp"])
                print(f"{path} c={width:<14}{mine:>12.0f}{theirs:>16.0f}{mine / theirs:>8.2f}")
    finally:
        upstream.terminate()
        upstream.wait()


if __name__ == "__main__":
    main()
