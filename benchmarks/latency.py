"""Measures the delay between the upstream's tokens and the gateway's sentences, which are judged before they are sent.

    python -m benchmarks.latency [--streams 8] [--replies 4] [--token-ms 20] [--first-ms 300]

Starts three processes on loopback that share one clock. The upstream sends the first token after ``--first-ms`` and
then one every ``--token-ms``, and records the times. The gateway, with its default judge and one worker, holds each
sentence until it is judged. The client keeps ``--streams`` streams open and records when text arrives. Each reply has
ten sentences of 15 words. Its five documents of 150 words are used by no other reply, so no document is cached.

Reports the median and the 95th percentile of three delays. The first is the delay from the last token of a sentence to
its delivery, for the first sentence and for all sentences. The second is the delay from the end of the upstream's reply
to the end of the client's reply. The third is the lag of the gateway's event loop (see
``benchmarks.support.event_loop_monitor``). The same figures without judging show the overhead of processes, loopback
and the machine. The benchmark uses all cores available to it. To limit it to two cores, run
``taskset -c 0,1 python -m benchmarks.latency``.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.request import urlopen

from benchmarks.gateway import REPOSITORY, cpu_s, free_port
from benchmarks.support.generated_texts import chunk, sentence

LAG = "/benchmark/lag"
SENTENCES, DOCUMENTS = 10, 5
_TOKEN = re.compile(r"\.| ?[^ .]+")
_NUMBER = re.compile(rb"Reply number (\d+)\.")
_POLICY = """
[[policies]]
name = "grounding"
category = "grounding"
rules = { contradiction_action = "flag", stream_mode = "hold" }
"""
_BARS = {"first sentence": 60.0, "end": 100.0, "loop late": 10.0}


def sentences_of(number: int) -> list[str]:
    """Return the sentences of the reply with this number, two from each of its documents."""
    return [sentence((number * DOCUMENTS + place // 2) * 10 + 3 + place % 2) for place in range(SENTENCES)]


def tokens_of(number: int) -> list[str]:
    return _TOKEN.findall(" ".join(sentences_of(number)))


def body_of(number: int) -> bytes:
    documents = [{"id": f"doc-{n}", "text": chunk(number * DOCUMENTS + n)} for n in range(DOCUMENTS)]
    body = {
        "model": "mock",
        "stream": True,
        "messages": [{"role": "user", "content": f"Reply number {number}."}],
        "documents": documents,
    }
    return json.dumps(body).encode()


# Upstream


class Upstream:
    """Sends the reply with the requested number. ``GET /times`` returns the time at which each token was sent."""

    def __init__(self, token_s: float, first_s: float) -> None:
        self._token_s, self._first_s = token_s, first_s
        self._said: dict[int, list[float]] = {}

    async def serve(self, port: int) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", port)
        async with server:
            await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1])) if length else b""
                if (asked := _NUMBER.search(body)) is None:
                    answer = json.dumps(self._said).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer))
                else:
                    await self._say(int(asked[1]), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _say(self, number: int, writer: asyncio.StreamWriter) -> None:
        said = self._said[number] = []
        start = time.monotonic()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for place, token in enumerate(tokens_of(number)):
            await asyncio.sleep(start + self._first_s + place * self._token_s - time.monotonic())
            said.append(time.monotonic())
            writer.write(_chunked(_event({"content": token})))
            await writer.drain()
        said.append(time.monotonic())
        writer.write(_chunked(_event({}, "stop") + b"data: [DONE]\n\n") + b"0\r\n\r\n")


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "mock", "choices": [choice]}
    return b"data: %b\n\n" % json.dumps(event).encode()


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


# Client


async def ask_all(port: int, streams: int, first: int, count: int) -> dict[int, dict[str, Any]]:
    """Request ``count`` replies, starting with number ``first``, with ``streams`` requests at a time."""
    numbers = iter(range(first, first + count))
    found: dict[int, dict[str, Any]] = {}

    async def some(place: int) -> None:
        await asyncio.sleep(place * 0.1)  # real users don't ask at the same instant
        for number in numbers:
            found[number] = await _ask(port, number)

    async with asyncio.TaskGroup() as group:
        for place in range(streams):
            group.create_task(some(place))
    return found


async def _ask(port: int, number: int) -> dict[str, Any]:
    """Return the text of a reply, the time at which each part of it arrived, and the time of its end."""
    body = body_of(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-length: {len(body)}\r\n"
    writer.write(head.encode() + b"content-type: application/json\r\nconnection: close\r\n\r\n" + body)
    text, came = "", []
    status = int((await reader.readline()).split()[1])
    while line := await reader.readline():
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                if piece := choice["delta"].get("content"):
                    text += piece
                    came.append((time.monotonic(), len(text)))
        elif line.startswith(b"data: [DONE]"):
            break
    over = time.monotonic()
    writer.close()
    return {"status": status, "text": text, "came": came, "over": over}


# The gateway between them, and the measurements


@dataclass(slots=True)
class Delays:
    """Delays in milliseconds, by name."""

    of: dict[str, list[float]]
    wrong: int = 0

    def add(self, number: int, said: Sequence[float], reply: Mapping[str, Any]) -> None:
        if reply["status"] != 200 or reply["text"] != " ".join(sentences_of(number)):
            self.wrong += 1
            return
        token = end = 0
        for place, each in enumerate(sentences_of(number)):
            token += len(_TOKEN.findall(each))
            end += len(each) + (place > 0)
            out = next(at for at, length in reply["came"] if length >= end)
            delay = (out - said[token - 1]) * 1e3
            self.of["every sentence"].append(delay)
            if place == 0:
                self.of["first sentence"].append(delay)
        self.of["end"].append((reply["over"] - said[-1]) * 1e3)


@dataclass(frozen=True, slots=True)
class Mock:
    process: subprocess.Popen[bytes]
    port: int


@contextmanager
def started(*command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, cwd=REPOSITORY, env=os.environ | environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def fetched(process: subprocess.Popen[bytes], port: int, path: str, patience_s: float = 600.0) -> Any:
    """Fetch JSON from ``process``, which may still be starting."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=patience_s) as answer:
                return json.load(answer)
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def measure(options: argparse.Namespace, folder: Path, upstream: Mock, judge: str) -> tuple[Delays, float]:
    """Return the delays with this judge, and the CPU seconds per stream."""
    home = folder / judge
    home.mkdir()
    base = f'[[upstreams]]\nname = "mock"\nbase_url = "http://127.0.0.1:{upstream.port}/v1"\n'
    (home / "groundlane.toml").write_text(base + (_POLICY if judge != "none" else ""))
    port = free_port()
    command = [
        *(sys.executable, "-m", "uvicorn", "benchmarks.support.event_loop_monitor:build_app", "--factory"),
        *("--loop", "uvloop", "--http", "httptools", "--no-access-log", "--no-server-header", "--log-level", "warning"),
    ]
    with started(
        *command,
        *("--port", str(port)),
        GROUNDLANE_CONFIG=str(home / "groundlane.toml"),
        GROUNDLANE_DATABASE_URL=f"sqlite+aiosqlite:///{home}/groundlane.db",
        GROUNDLANE_ADMIN_TOKEN="admin-token-for-the-benchmark",
        GROUNDLANE_ANNOTATE_BY_DEFAULT="false",
        GROUNDLANE_JUDGE=judge,
        GROUNDLANE_LOG_LEVEL="warning",
    ) as gateway:
        fetched(gateway, port, "/healthz")
        first = 0 if judge == "none" else 1_000
        ask_from_outside(options, port, first, 2)
        fetched(gateway, port, LAG)
        spent = cpu_s(gateway.pid)
        count = options.streams * options.replies
        replies = ask_from_outside(options, port, first + 2, count)
        lag = fetched(gateway, port, LAG)
        spent = (cpu_s(gateway.pid) - spent) / count
    delays = Delays({"first sentence": [], "every sentence": [], "end": []})
    delays.of |= {"loop late": lag["late"], "loop busy": lag["busy"]}
    said = fetched(upstream.process, upstream.port, "/times")
    for number, reply in replies.items():
        delays.add(int(number), said[number], reply)
    return delays, spent


def ask_from_outside(options: argparse.Namespace, port: int, first: int, count: int) -> dict[str, Any]:
    arguments = ["client", str(port), str(options.streams), str(first), str(count)]
    command = [sys.executable, "-m", "benchmarks.latency", *arguments]
    found: dict[str, Any] = json.loads(subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True).stdout)
    return found


def report(judge: str, delays: Delays, cpu: float) -> None:
    told = "every sentence judged" if judge != "none" else "nothing judged"
    print(f"\n{told}: {cpu * 1e3:.0f} ms of CPU time per stream; {delays.wrong} wrong replies")
    print(f"{'ms':16} {'p50':>8} {'p95':>8} {'p99':>8} {'max':>8} {'count':>7}")
    for name, values in ((name, values) for name, values in delays.of.items() if values):
        ranks = quantiles(values * 2 if len(values) == 1 else values, n=100, method="inclusive")
        bar, at = _BARS.get(name), 98 if name == "loop late" else 94
        said = "" if bar is None else f"  bar {bar:.0f} at p{at + 1}: {'met' if ranks[at] <= bar else 'OVER'}"
        row = " ".join(f"{value:8.1f}" for value in (ranks[49], ranks[94], ranks[98], max(values)))
        print(f"{name:16} {row} {len(values):7}{said if judge != 'none' else ''}")


def main() -> None:
    if sys.argv[1:2] == ["upstream"]:
        port, token_ms, first_ms = sys.argv[2:]
        asyncio.run(Upstream(float(token_ms) / 1e3, float(first_ms) / 1e3).serve(int(port)))
    if sys.argv[1:2] == ["client"]:
        print(json.dumps(asyncio.run(ask_all(*map(int, sys.argv[2:])))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=8, help="concurrent streams")
    parser.add_argument("--replies", type=int, default=4, help="consecutive replies per stream")
    parser.add_argument("--token-ms", type=float, default=20.0)
    parser.add_argument("--first-ms", type=float, default=300.0, help="time to the first token")
    parser.add_argument("--judges", default="none,embedded")
    options = parser.parse_args()
    print(
        f"{len(os.sched_getaffinity(0))} cores, {options.streams} concurrent streams, {options.token_ms:g} ms per token"
    )
    with tempfile.TemporaryDirectory() as name:
        port = free_port()
        arguments = [str(port), str(options.token_ms), str(options.first_ms)]
        with started(sys.executable, "-m", "benchmarks.latency", "upstream", *arguments) as process:
            upstream = Mock(process, port)
            fetched(process, port, "/times")
            for judge in options.judges.split(","):
                report(judge, *measure(options, Path(name), upstream, judge))


if __name__ == "__main__":
    main()
