"""Measures how long ``GET /healthz`` waits while the gateway reads texts that are designed to be slow to read.

    python -m benchmarks.health_latency [--size 320000] [--only SHAPE,...] [--ways WAY,...]

The gateway has one worker, a judge that takes no time, and a policy that holds every sentence. For each shape of
``benchmarks.growth``, it receives about ``--size`` characters in three ways:

    streamed  a streamed reply
    whole     a reply that isn't streamed
    request   a request, with the shape as message and as document

Meanwhile, another process fetches ``/healthz`` every 5 ms. The table shows the longest wait and the time of the whole
exchange, in milliseconds. The exit status is 1 if a wait exceeds 100 ms. Other work on the machine adds to the waits.
"""

import argparse
import asyncio
import http.client
import json
import multiprocessing
import re
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx

from benchmarks.growth import SHAPES, shaped
from benchmarks.latency import started
from benchmarks.soak import frame, free_port, until_up

MAX_WAIT_MS = 100.0
WAYS = ("streamed", "whole", "request")
_DELTA = 64
_EVERY_S = 0.005
_DOCUMENT = "Permanent staff receive 25 days of annual leave. The canteen opens at 8:00."
_POLICY = """
[[upstreams]]
name = "shapes"
base_url = "http://127.0.0.1:{port}/v1"

[[policies]]
name = "grounding"
category = "grounding"
rules = {{ contradiction_action = "block", unjudged_action = "strip", stream_mode = "hold" }}
"""


async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reply with the shape that the requested model's name selects."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            body = json.loads(await reader.readexactly(int(length.group(1)) if length else 0))
            shape, _, size = body["model"].rpartition(":")
            text = shaped(shape, int(size)) if int(size) else _DOCUMENT
            if body.get("stream"):
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for start in range(0, len(text), _DELTA):
                    await _send(writer, frame({"content": text[start : start + _DELTA]}))
                await _send(writer, frame({}, "stop") + b"data: [DONE]\n\n")
                writer.write(b"0\r\n\r\n")
            else:
                message = {"role": "assistant", "content": text}
                made = json.dumps({"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n%s" % (len(made), made.encode()))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


async def _send(writer: asyncio.StreamWriter, piece: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    await writer.drain()


def poll(port: int, pipe: Connection) -> None:
    """Fetch ``/healthz`` repeatedly. Whenever something arrives on ``pipe``, send back the longest wait since the last
    time, in milliseconds; None ends the process."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    longest = 0.0
    while True:
        begun = time.perf_counter()
        client.request("GET", "/healthz")
        client.getresponse().read()
        longest = max(longest, (time.perf_counter() - begun) * 1e3)
        if pipe.poll(_EVERY_S):
            if pipe.recv() is None:
                return
            pipe.send(longest)
            longest = 0.0


def body_of(shape: str, way: str, size: int) -> dict[str, Any]:
    text = shaped(shape, size) if way == "request" else "How much leave is there?"
    return {
        "model": f"{shape}:{0 if way == 'request' else size}",
        "messages": [{"role": "user", "content": text}],
        "documents": [{"id": "a", "text": f"{_DOCUMENT} {text}" if way == "request" else _DOCUMENT, "source": "a.pdf"}],
        "stream": way == "streamed",
    }


async def measured(port: int, shapes: list[str], ways: list[str], size: int) -> int:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    poller = multiprocessing.get_context("spawn").Process(target=poll, args=(port, theirs), daemon=True)
    poller.start()

    def longest() -> float:
        ours.send(True)
        waited: float = ours.recv()
        return waited

    await asyncio.to_thread(longest)
    faults = 0
    print(f"{'shape':20} {'way':9} {'wait ms':>9} {'total ms':>9}")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
        for shape in shapes:
            for way in ways:
                begun = time.perf_counter()
                reply = await client.post("/v1/chat/completions", json=body_of(shape, way, size))
                total = (time.perf_counter() - begun) * 1e3
                waited = await asyncio.to_thread(longest)
                over = waited > MAX_WAIT_MS
                faults += over
                status = "" if reply.status_code == httpx.codes.OK else f"  HTTP {reply.status_code}"
                print(f"{shape:20} {way:9} {waited:9.1f} {total:9.0f}{status}{'  over' if over else ''}", flush=True)
    ours.send(None)
    print(f"{faults} of {len(shapes) * len(ways)} waits are longer than {MAX_WAIT_MS:.0f} ms")
    return faults


async def run(shapes: list[str], ways: list[str], size: int) -> int:
    server = await asyncio.start_server(upstream, "127.0.0.1", 0)
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "groundlane.toml"
        config.write_text(_POLICY.format(port=server.sockets[0].getsockname()[1]))
        environment = {
            "GROUNDLANE_CONFIG": str(config),
            "GROUNDLANE_DATABASE_URL": f"sqlite+aiosqlite:///{name}/groundlane.db",
            "GROUNDLANE_ADMIN_TOKEN": "the-token-of-the-benchmark",
            "GROUNDLANE_LOG_LEVEL": "warning",
        }
        command = (sys.executable, "-m", "uvicorn", "benchmarks.support.free_judge:build_app", "--factory")
        with started(*command, "--no-access-log", "--log-level", "warning", "--port", str(port), **environment):
            await until_up(port)
            return await measured(port, shapes, ways, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=320_000, help="characters of text")
    parser.add_argument("--only", help="comma-separated shapes to test")
    parser.add_argument("--ways", default=",".join(WAYS), help="comma-separated ways to test")
    given = parser.parse_args()
    shapes = given.only.split(",") if given.only else list(SHAPES)
    sys.exit(1 if asyncio.run(run(shapes, given.ways.split(","), given.size)) else 0)


if __name__ == "__main__":
    main()
