"""Runs a mixed load on several workers and PostgreSQL during failures, and checks responses, stored events and memory.

    python -m benchmarks.load_with_failures [--seconds 1800] [--rate 4] [--workers 4]

Starts PostgreSQL, a scripted upstream and ``groundlane serve --workers N`` on loopback, and sends ``--rate`` requests
per second: streams with documents for the judge, whole replies, ungoverned requests, stale documents that a policy
refuses, and clients that disconnect. Meanwhile, an administrator changes a policy and keys, and checks that every
worker applies the changes. During the first third of the run, all workers are replaced one after another (SIGHUP), the
upstream is temporarily unreachable, and the database crashes and recovers. The benchmark reports:

- responses with a status of 500 or higher, counted separately during the outage of the upstream;
- whether every request id that a client received is in the database, and whether the rollups match the rows;
- the time until the slowest worker applied a change;
- the memory of each worker, and its growth rate after the failures, starting at 40 % of the run.

The benchmark stops all processes by their process ids.
"""

import argparse
import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import linear_regression
from typing import Any

import aiohttp
import asyncpg

from benchmarks.soak import TOKEN, free_port, resident
from benchmarks.support.mixed_load import Administrator, Client, Seen, Upstream
from benchmarks.support.postgres import PostgresServer

KINDS = {"judged stream": 35, "judged": 20, "passed stream": 10, "passed": 10, "refused": 10, "hang-up": 15}
_LIMIT_S = 900
"""The time limit for starting and stopping."""


class Fleet:
    """The memory of the gateway's processes over time, in MiB, by process id."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.child = child
        self.memory: dict[int, list[tuple[float, float]]] = {}

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text().split()
        return [pid for pid in map(int, children) if b"resource_tracker" not in _command(pid)]

    async def replaced(self, before: set[int]) -> None:
        """Wait until none of ``before`` is left."""
        for _ in range(_LIMIT_S):
            if not set(self.workers()) & before:
                return
            await asyncio.sleep(1)
        _say("not all workers were replaced in time")

    async def watch(self, every_s: float) -> None:
        began = time.monotonic()
        while True:
            for pid in self.workers():
                with suppress(FileNotFoundError, IndexError):  # it ended meanwhile
                    self.memory.setdefault(pid, []).append((time.monotonic() - began, resident(pid) / 1024))
            await asyncio.sleep(every_s)

    def report(self, since_s: float) -> None:
        for pid, samples in self.memory.items():
            late = [sample for sample in samples if sample[0] >= since_s]
            shown = f"{samples[0][1]:.1f} MiB at the start, at most {max(size for _, size in samples):.1f}"
            if len(late) >= 3:
                slope = linear_regression([at for at, _ in late], [size for _, size in late]).slope * 60
                shown += f"; from {since_s:.0f} s on {late[0][1]:.1f} to {late[-1][1]:.1f}, {slope:+.3f} MiB per minute"
            print(f"  worker {pid}: {shown}")


def _command(pid: int) -> bytes:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"resource_tracker"


async def load(client: Client, rate: float, seconds: float) -> None:
    """Send requests at random times, ``rate`` per second on average. Requests don't wait for earlier requests."""
    until = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        while time.monotonic() < until:
            (kind,) = random.choices(list(KINDS), list(KINDS.values()))
            group.create_task(client.send(kind))
            await asyncio.sleep(random.expovariate(rate))


async def trouble(seconds: float, fleet: Fleet, upstream: Upstream, database: PostgresServer, seen: Seen) -> float:
    """Cause all failures, and return the time at which the last one ended."""
    before = set(fleet.workers())
    await asyncio.sleep(seconds * 0.1)
    fleet.child.send_signal(signal.SIGHUP)
    _say("all workers are replaced")
    await fleet.replaced(before)
    _say(f"replaced: {sorted(before)} by {sorted(fleet.workers())}")
    await asyncio.sleep(seconds * 0.04)
    upstream.stop()
    seen.outage = (time.monotonic(), float("inf"))
    _say("the upstream is gone")
    await asyncio.sleep(min(seconds * 0.03, 30))
    await upstream.start()
    seen.outage = (seen.outage[0], time.monotonic() + 1)  # clients that connected just before may still fail just after
    _say("the upstream is back")
    await asyncio.sleep(seconds * 0.04)
    await asyncio.to_thread(database.stop)
    _say("the database is gone")
    await asyncio.sleep(min(seconds * 0.03, 30))
    await asyncio.to_thread(database.start)
    _say("the database is back")
    return time.monotonic()


def _say(what: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {what}", flush=True)


async def compare(database: PostgresServer, seen: Seen) -> None:
    """Compare the request ids that clients received with the stored events."""
    connection = await asyncpg.connect(database.url.replace("+asyncpg", ""))
    try:
        rows = Counter(row[0] for row in await connection.fetch("SELECT request_id FROM requests"))
        counted = await connection.fetchval(
            "SELECT sum(requests) FROM request_statistics WHERE policy_id = '' AND step = 3600"
        )
        orphans = await connection.fetchval(
            "SELECT count(*) FROM decisions d WHERE NOT EXISTS "
            "(SELECT 1 FROM requests r WHERE r.request_id = d.request_id)"
        )
        decisions = await connection.fetchrow("SELECT count(*), count(DISTINCT (request_id, position)) FROM decisions")
        claims = await connection.fetchrow("SELECT count(*), count(DISTINCT (request_id, seq)) FROM claims")
        statuses = dict(await connection.fetch("SELECT status, count(*) FROM requests GROUP BY status"))
    finally:
        await connection.close()
    print(f"events: {len(seen.ids)} ids given, {rows.total()} rows {statuses}")
    print(f"  lost: {len(seen.ids - set(rows))}, duplicated: {sum(count > 1 for count in rows.values())}")
    print(f"  rows with an id that no client received (refused keys create no row): {len(set(rows) - seen.ids)}")
    print(
        f"  requests in rollups: {counted}; decisions {tuple(decisions)}, {orphans} without request; claims "
        f"{tuple(claims)}"
    )


async def scrape(base: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"{base}/metrics") as response:
        return await response.text()


def report(seen: Seen, exposition: str, log: Path) -> None:
    for outcome, count in sorted(seen.outcomes.items()):
        print(f"  {count:6} {outcome}")
    print(f"unexpected: {len(seen.unexpected)} {Counter(seen.unexpected)}")
    if seen.changes_ms:
        ordered = sorted(seen.changes_ms)
        median, late = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)]
        print(
            f"time until the slowest worker applied a change: median {median:.0f} ms, p95 {late:.0f}, maximum "
            f"{ordered[-1]:.0f}"
        )
    print(f"responses based on the state before a change: {dict(seen.stale)}")
    counted = re.findall(r"^groundlane_requests_total\{.*\} (\S+)$", exposition, re.MULTILINE)
    events = re.findall(r"^groundlane_events_(\w+) (\S+)$", exposition, re.MULTILINE)
    print(f"/metrics: {sum(map(float, counted)):.0f} requests, events {dict(events)}")
    lines = Counter(re.findall(r'"event": ?"(\w+)"', log.read_text(errors="replace")))
    lines.pop("request", None)
    print(f"log: {dict(lines)}")


async def run(seconds: float, rate: float, workers: int) -> None:
    """Run everything. SIGTERM ends the run early and stops all processes."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    seen, upstream, database = Seen(), Upstream(), PostgresServer()
    await upstream.start()
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("wb") as log:
        try:
            await asyncio.to_thread(database.start)
            port = free_port()
            base = f"http://127.0.0.1:{port}"
            child = await asyncio.to_thread(_serve, Path(folder), log, port, upstream.port, database.url, workers)
            try:
                await _until_up(base, child)
                exposition = await _measure(base, child, seconds, rate, upstream, database, seen)
            finally:
                child.send_signal(signal.SIGTERM)
                await asyncio.to_thread(child.wait, _LIMIT_S)
            report(seen, exposition, Path(folder) / "log")
            await compare(database, seen)
            print(f"  left in journals: {sorted(name for name in os.listdir(folder) if 'events' in name)}")
        finally:
            upstream.stop()
            database.close()


async def _measure(
    base: str,
    child: subprocess.Popen[bytes],
    seconds: float,
    rate: float,
    upstream: Upstream,
    database: PostgresServer,
    seen: Seen,
) -> str:
    client, administrator, fleet = Client(base, seen), Administrator(base, seen), Fleet(child)
    try:
        gate = await administrator.prepare()
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(administrator.work(gate)), group.create_task(fleet.watch(seconds / 200))]
            happening = group.create_task(trouble(seconds, fleet, upstream, database, seen))
            began = time.monotonic()
            await load(client, rate, seconds)
            ended = await happening
            for task in beside:
                task.cancel()
        await asyncio.sleep(3)
        print("memory:")
        fleet.report(max(seconds * 0.4, ended - began + seconds * 0.05))
        return await scrape(base)
    finally:
        await client.aclose()
        await administrator.aclose()


def _serve(folder: Path, log: Any, port: int, upstream: int, database: str, workers: int) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "GROUNDLANE_UPSTREAM_BASE_URL": f"http://127.0.0.1:{upstream}/v1",
        "GROUNDLANE_ADMIN_TOKEN": TOKEN,
        "GROUNDLANE_DATABASE_URL": database,
    }
    command = [sys.executable, "-c", "from app.cli.main import main; main()", "serve", "--port", str(port)]
    return subprocess.Popen(
        [*command, "--workers", str(workers)], cwd=folder, env=environment, stderr=log, start_new_session=True
    )


async def _until_up(base: str, child: subprocess.Popen[bytes]) -> None:
    async with aiohttp.ClientSession() as session:
        for _ in range(5 * _LIMIT_S):
            with suppress(aiohttp.ClientError):
                async with session.get(f"{base}/readyz") as response:
                    if response.status == 200:
                        return
            if child.poll() is not None:
                break
            await asyncio.sleep(0.2)
    raise SystemExit("the gateway did not start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--rate", type=float, default=4)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    asyncio.run(run(options.seconds, options.rate, options.workers))


if __name__ == "__main__":
    main()
