"""Measures the event writer: ``python -m benchmarks.events URL [--seconds N]``.

The first part writes events as fast as possible. Each event has thirteen rows. This part reports rows per hour and CPU
time per event, with and without the rollups. The second part locks the database and fills the queue. This part reports
the duration of ``append``, because replies wait for that call. For comparison, this part also reports the event-loop
lag caused by other work on the machine.
"""

import argparse
import asyncio
import random
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time
from unittest.mock import patch
from uuid import uuid4

import structlog
from sqlalchemy import text

from app.db.database import Database
from app.db.schema import upgrade
from app.events.records import ClaimRow, DocumentRow, RequestEvent, RequestRow
from app.events.rollups import rollup_update as tallies
from app.events.storage.writer import EventWriter
from benchmarks.fill_event_log import AGENTS, MODELS, POLICIES
from policies.types import Action, Decision, Phase

_ROWS = 13
_KEPT_WAITING = 2_000
_QUEUE = 1_000


def make_event(chance: random.Random) -> RequestEvent:
    action = chance.choices(["allow", "warn", "block"], [88, 8, 4])[0]
    chosen = chance.choice(list(POLICIES))
    return RequestEvent(
        request=RequestRow(
            request_id=f"req_{uuid4().hex}",
            ts=datetime.now(UTC),
            api="chat",
            model=chance.choice(MODELS),
            resolved_model="gpt-4o-mini-2024-07-18",
            agent=chance.choice(AGENTS),
            run_id=None,
            key_prefix="gl-abc",
            stream=True,
            status="blocked" if action == "block" else "completed",
            http_status=200,
            action=action,
            verdict="has_contradictions" if action == "block" else "supported",
            trust_score=chance.random(),
            documents=3,
            sentences=4,
            prompt_tokens=900,
            completion_tokens=120,
            usage_estimated=False,
            upstream_ms=chance.lognormvariate(7.0, 0.6),
            judge_ms=chance.lognormvariate(3.5, 0.7),
            total_ms=chance.lognormvariate(7.2, 0.6),
            finish_reason="stop",
            error=None,
            prompt="sha256:" + "0" * 64,
            reply="sha256:" + "0" * 64,
        ),
        decisions=tuple(
            Decision(
                policy_id=chosen,
                policy_version=3,
                policy_name=POLICIES[chosen][0],
                category="grounding",
                phase=Phase.AFTER_WORKFLOW,
                action=Action.ALLOW,
                reason="Every claim is supported by the documents",
                reason_code=None,
                metadata={"score": 0.93, "min_score": 0.7},
                latency_ms=0.1,
            )
            for _ in range(5)
        ),
        claims=tuple(_claim(number) for number in range(4)),
        documents=tuple(
            DocumentRow(
                position=number,
                document_id=f"d{number}",
                source="handbook.pdf",
                collection="kb",
                relevance_score=0.9,
                age_days=30.0,
                title=None,
                url=None,
                kept=True,
                reason=None,
                text=None,
            )
            for number in range(3)
        ),
    )


def _claim(number: int) -> ClaimRow:
    return ClaimRow(
        position=number,
        choice=0,
        sentence_index=number,
        start=0,
        end=80,
        label="supported",
        score=0.9,
        confidence=0.9,
        document_id="d1",
        document_index=0,
        evidence_start=0,
        evidence_end=120,
        delivered=True,
        reason=None,
        judge_ms=9.0,
        text=None,
        evidence=None,
    )


async def sustained(database: Database, folder: Path, seconds: float) -> str:
    """Append events as fast as the writer accepts them, without using the journal."""
    writer = EventWriter(database, journal_path=folder / "events")
    await writer.start()
    chance = random.Random(1)
    events = [make_event(chance) for _ in range(_KEPT_WAITING)]
    started, started_cpu, made = perf_counter(), process_time(), 0.0
    while perf_counter() - started < seconds:
        if writer.queue_depth >= _KEPT_WAITING:
            await asyncio.sleep(0.01)
            continue
        before = process_time()
        events = [make_event(chance) for _ in range(200)]
        made += process_time() - before
        for event in events:
            await writer.append(event)
    await writer.aclose()
    took, cpu = perf_counter() - started, process_time() - started_cpu - made
    rows = writer.written * _ROWS
    by_clock, by_processor = (f"{rows / time * 3600 / 1e6:.1f}" for time in (took, cpu))
    return (
        f"{by_clock} million rows per hour in wall-clock time, {by_processor} in CPU time; "
        f"{cpu / writer.written * 1e3:.3f} ms of CPU time per event; lost {writer.dropped}"
    )


async def full(database: Database, other: Database, folder: Path, count: int) -> str:
    """Append events while the database is locked, until the queue has been full for a long time."""
    writer = EventWriter(database, journal_path=folder / "events", queue_limit=_QUEUE)
    await writer.start()
    chance = random.Random(2)
    waits: list[float] = []
    late: list[float] = []
    async with other.write() as connection:
        if database.dialect == "postgresql":
            await connection.execute(text("LOCK TABLE requests, decisions, claims, documents"))
        for _ in range(count):
            event = make_event(chance)
            started = perf_counter()
            await writer.append(event)
            waits.append((perf_counter() - started) * 1e3)
            started = perf_counter()
            await asyncio.sleep(0.001)
            late.append((perf_counter() - started) * 1e3 - 1.0)
    depth, spilled = writer.queue_depth, writer.journaled
    await writer.aclose()
    where = f"{depth} waiting, {spilled} in the journal, {writer.dropped} lost"
    return f"append: {_told(waits)}; event-loop lag: {_told(late)}; {where}"


def _told(values: Sequence[float]) -> str:
    cuts = quantiles(values, n=100)
    return f"p50 {median(values):.2f}, p99 {cuts[98]:.2f}, longest {max(values):.2f} ms"


async def run(url: str, seconds: float, count: int) -> None:
    database, other = Database(url), Database(url)
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            print("counted:    ", await sustained(database, folder, seconds), flush=True)
            with patch.object(tallies, "add"):
                print("not counted:", await sustained(database, folder, seconds), flush=True)
            print("queue full: ", await full(database, other, folder, count), flush=True)
    finally:
        await database.aclose()
        await other.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="URL of the database to write to")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--appends", type=int, default=3_000)
    wanted = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    upgrade(wanted.url)
    asyncio.run(run(wanted.url, wanted.seconds, wanted.appends))


if __name__ == "__main__":
    main()
