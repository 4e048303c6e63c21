"""A soak test with many concurrent streams, a failing upstream, and clients that disconnect, read slowly or send
invalid data.

    python -m benchmarks.soak [--seconds 600] [--streams 64]

Starts ``groundlane serve`` and a scripted upstream on loopback, and keeps ``--streams`` requests in flight. It prints
the gateway's memory, its open sockets and the outcomes of the requests ten times during the run. At the end, it prints
the growth of memory after warm-up, the number of sockets at the start and the end, and whether every request that
reached the gateway left exactly one row. It ends after the given time, and stops every process that it started.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

TOKEN = "admin-token-for-the-soak"
DOCUMENT = {"text": "The warranty covers 24 months from the date of purchase.", "relevance_score": 0.9, "age_days": 3}
POST = "POST /v1/chat/completions HTTP/1.1\r\n"
SENTENCES = [
    "The warranty covers 24 months from the date of purchase. ",
    "The warranty covers 48 months from the date of purchase. ",
    "Bicycles may be parked behind the canteen. ",
    "I hope this helps! ",
]


def frame(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Respond randomly with streams, completions, errors, resets, or incomplete replies."""
    chance = random.Random()
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(length.group(1)) if length else 0)
            mood = chance.random()
            if mood < 0.03:
                writer.transport.abort()
                return
            if mood < 0.08:
                writer.write(b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\n{}")
            elif b'"stream":true' in body.replace(b" ", b""):
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                text = "".join(chance.choices(SENTENCES, k=chance.randint(1, 8)))
                words = text.split(" ")
                cut = len(words) if mood > 0.15 else chance.randint(0, len(words))
                for word in words[:cut]:
                    piece = frame({"content": f"{word} "})
                    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    await writer.drain()
                    await asyncio.sleep(chance.random() * 0.01)
                if cut < len(words):
                    writer.transport.abort()
                    return
                piece = frame({}, "stop") + b"data: [DONE]\n\n"
                writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(piece), piece))
            else:
                text = "".join(chance.choices(SENTENCES, k=3))
                message = {"role": "assistant", "content": text}
                made = json.dumps({"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
                writer.write(
                    f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(made)}\r\n\r\n".encode()
                    + made.encode()
                )
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


async def client(port: int, deadline: float, outcomes: Counter[str], ids: set[str]) -> None:
    """Send one request after another, each with random client behavior."""
    chance = random.Random()
    while time.monotonic() < deadline:
        stream, temper = chance.random() < 0.8, chance.random()
        body: dict[str, object] = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "?"}]}
        if chance.random() < 0.7:
            body["documents"] = [{**DOCUMENT, "age_days": 400 if chance.random() < 0.1 else 3}]
        raw = b"{nonsense" if temper < 0.03 else json.dumps(body).encode()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"{POST}host: x\r\ncontent-length: {len(raw)}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode() + raw)
            answer = b""
            while data := await asyncio.wait_for(reader.read(512 if temper > 0.9 else 65536), 60):
                answer += data
                if temper < 0.15 and len(answer) > 900:
                    writer.transport.abort()
                    outcomes["hung up"] += 1
                    break
                if temper > 0.9:
                    await asyncio.sleep(0.02)
            else:
                outcomes[answer[9:12].decode() or "nothing"] += 1
            if found := re.search(rb"x-groundlane-request-id: (req_\w+)", answer):
                ids.add(found.group(1).decode())
            writer.close()
        except (OSError, TimeoutError) as error:
            outcomes[type(error).__name__] += 1


def resident(pid: int) -> int:
    """Return the memory of a process in KiB."""
    return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])


def sockets(pid: int) -> int:
    found = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed since it was listed
            found += "socket" in os.readlink(f"/proc/{pid}/fd/{fd}")
    return found


async def soak(port: int, pid: int, seconds: float, streams: int) -> tuple[list[tuple[float, int]], set[str]]:
    outcomes: Counter[str] = Counter()
    ids: set[str] = set()
    started = time.monotonic()
    clients = [asyncio.ensure_future(client(port, started + seconds, outcomes, ids)) for _ in range(streams)]
    memory: list[tuple[float, int]] = []
    while time.monotonic() - started < seconds:
        await asyncio.sleep(seconds / 20)
        memory.append((time.monotonic() - started, resident(pid)))
        if len(memory) % 2 == 0:
            print(
                f"{memory[-1][0]:6.0f} s  {memory[-1][1] / 1024:6.1f} MiB  {sockets(pid):4} sockets  {dict(outcomes)}",
                flush=True,
            )
    await asyncio.gather(*clients)
    return memory, ids


async def run(seconds: float, streams: int) -> None:
    server = await asyncio.start_server(upstream, "127.0.0.1", 0)
    away = server.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "GROUNDLANE_UPSTREAM_BASE_URL": f"http://127.0.0.1:{away}/v1",
            "GROUNDLANE_ADMIN_TOKEN": TOKEN,
            "GROUNDLANE_LOG_LEVEL": "error",
        }
        code = "from app.cli.main import main; main()"
        port = free_port()
        gateway = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-c", code, "serve", "--port", str(port)],
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        try:
            await until_up(port)
            await make_policies(port)
            base = sockets(gateway.pid)
            memory, ids = await soak(port, gateway.pid, seconds, streams)
            await asyncio.sleep(3)
            print(f"sockets: {base} at the start, {sockets(gateway.pid)} at the end")
        finally:
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(60)
            server.close()
        report(memory, ids, Path(folder) / "groundlane.db")


def report(memory: list[tuple[float, int]], ids: set[str], database: Path) -> None:
    late = memory[len(memory) // 4 :]
    mean_t, mean_m = (sum(column) / len(late) for column in zip(*late, strict=True))
    slope = sum((t - mean_t) * (m - mean_m) for t, m in late) / sum((t - mean_t) ** 2 for t, _ in late)
    print(
        f"memory after warm-up: {late[0][1] / 1024:.1f} to {late[-1][1] / 1024:.1f} MiB, slope "
        f"{slope * 60 / 1024:+.3f} MiB per minute"
    )
    with sqlite3.connect(database) as connection:
        rows = Counter(row[0] for row in connection.execute("SELECT request_id FROM requests"))
        by_status = dict(connection.execute("SELECT status, count(*) FROM requests GROUP BY status").fetchall())
    print(
        f"rows: {sum(rows.values())} {by_status}; answered but not recorded: {len(ids - set(rows))}; "
        f"duplicated: {sum(count > 1 for count in rows.values())}"
    )


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def until_up(port: int) -> None:
    for _ in range(300):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    raise SystemExit("the gateway did not start")


async def make_policies(port: int) -> None:
    for category, rules in (("retrieval", {}), ("grounding", {"contradiction_action": "block"})):
        raw = json.dumps({"name": category, "category": category, "rules": rules})
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /admin/v1/policies HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n"
        writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(raw)}\r\n".encode())
        writer.write(f"connection: close\r\n\r\n{raw}".encode())
        answer = await reader.read()
        writer.close()
        if b" 201 " not in answer[:20]:
            raise SystemExit(answer.decode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--streams", type=int, default=64)
    options = parser.parse_args()
    asyncio.run(run(options.seconds, options.streams))


if __name__ == "__main__":
    main()
