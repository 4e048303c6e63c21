"""Fills a database with an event log of a given size.

    python -m benchmarks.fill_event_log URL [--requests N] [--days N]

SQL statements create the rows, in tables of an earlier version without rollups. The tables are then migrated to the
current version, so that the cost of the migration is measured too. Requests are spread over the days, mostly during the
day, and unevenly over agents, models and policies. Each request has five decisions, and the newest requests have claims
and documents.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any, TypeVar

from alembic import command
from sqlalchemy import Table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.database import Database
from app.db.partitions import create_months, month_of, next_month
from app.db.schema import alembic_config, upgrade
from app.db.tables import EVENT_TABLES, claims, decisions, documents, policies, policy_versions, requests

REQUESTS, DAYS, DECISIONS, WITH_CLAIMS = 1_000_000, 90, 5, 100_000
AGENTS = [
    f"{name}-agent" for name in ("support", "research", "claims", "legal", "sales", "hr", "it", "travel", "audit")
]
MODELS = ["gpt-4o-mini", "gpt-4o", "claude-sonnet", "llama-3.3-70b"]
POLICIES = {
    "pol_00": ("fresh documents", "retrieval"),
    "pol_01": ("grounded answers", "grounding"),
    "pol_02": ("numbers agree", "grounding"),
    "pol_03": ("known collections", "retrieval"),
    "pol_04": ("strict support", "grounding"),
    "pol_05": ("looking on", "grounding"),
}
_VERDICTS = ["supported", "has_unverifiable", "no_claims", "no_sources", "not_checked"]
_CODES = ["RETRIEVAL_STALE_SOURCE", "GROUNDING_LOW_SCORE", "GROUNDING_CONTRADICTED", "GROUNDING_UNSUPPORTED_RATIO"]
_BEFORE_STATISTICS = "0006"
T = TypeVar("T")


def draw(prime: int) -> str:
    """Return SQL for a pseudo-random number from 0 to 1, which depends on the request number ``i`` and the prime."""
    return f"(((i * 7919 + {prime // 2}) % {prime}) / {prime}.0)"


def one_of(values: Sequence[str], prime: int) -> str:
    """Return SQL for one of ``values``. The first values are more frequent."""
    ends = [(place / len(values)) ** 0.5 for place in range(1, len(values))]
    cases = [f"WHEN {draw(prime)} < {end} THEN '{value}'" for end, value in zip(ends, values, strict=False)]
    return f"CASE {' '.join(cases)} ELSE '{values[-1]}' END"


class Rows:
    """Return the rows as SQL expressions over the request number ``i``, by table and column."""

    def __init__(self, dialect: str, count: int, days: int, with_claims: int) -> None:
        self.sqlite, self.count, self.with_claims = dialect == "sqlite", count, with_claims
        self.start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days)
        second = f"CASE WHEN {draw(10_007)} < 0.8 THEN 25200 + 43200 * {draw(10_009)} ELSE 86400 * {draw(10_009)} END"
        day = f"CAST(i * {days} / {count} AS INTEGER)" if self.sqlite else f"(i * {days} / {count})"
        epoch = f"{int(self.start.timestamp())} + 86400 * {day} + {second}"
        request_id = "printf('req_%032x', i)" if self.sqlite else "'req_' || lpad(to_hex(i), 32, '0')"
        time = f"strftime('%Y-%m-%d %H:%M:%f000', {epoch}, 'unixepoch')" if self.sqlite else f"to_timestamp({epoch})"
        self.of_request = {
            "request_id": request_id,
            "ts": time,
            "run_id": f"CASE WHEN {draw(10_037)} < 0.1 THEN 'run_' || (i / 10) END",
            "agent": one_of(AGENTS, 10_039),
            "model": one_of(MODELS, 10_061),
        }
        self.action = (
            f"CASE WHEN {draw(10_067)} < 0.04 THEN 'block' WHEN {draw(10_067)} < 0.12 THEN 'warn' ELSE 'allow' END"
        )

    async def fill(self, connection: AsyncConnection, first: int, last: int) -> None:
        """Insert the rows of the requests with these numbers."""
        numbers = self._numbers("numbers", "i", first, last)
        newest = self._numbers("numbers", "i", max(first, self.count - self.with_claims), last)
        await self._insert(connection, requests, [numbers], "numbers", self._requests())
        places = [
            f"({place}, '{id}', '{name}', '{category}')"
            for place, (id, (name, category)) in enumerate(POLICIES.items())
        ]
        named = f"asked(place, policy_id, policy_name, category) AS (VALUES {', '.join(places)})"
        parts = [numbers, self._numbers("positions", "p", 0, DECISIONS - 1), named]
        joined = f"numbers CROSS JOIN positions JOIN asked ON place = (i + p % 3) % {len(POLICIES)}"
        await self._insert(connection, decisions, parts, joined, self._decisions())
        four = [newest, self._numbers("positions", "p", 0, 3)]
        if last < self.count - self.with_claims:
            return
        await self._insert(connection, claims, four, "numbers CROSS JOIN positions", self._claims())
        await self._insert(connection, documents, four, "numbers CROSS JOIN positions", self._documents())

    def _numbers(self, name: str, column: str, first: int, last: int) -> str:
        if self.sqlite:
            more = f"SELECT {column} + 1 FROM {name} WHERE {column} < {last}"
            return f"{name}({column}) AS (VALUES ({first}) UNION ALL {more})"
        return f"{name}({column}) AS (SELECT generate_series(CAST({first} AS bigint), {last}))"

    async def _insert(
        self, connection: AsyncConnection, table: Table, parts: list[str], source: str, values: Mapping[str, str]
    ) -> None:
        started = perf_counter()
        names = ", ".join(f'"{name}"' for name in values)
        chosen = f"WITH RECURSIVE {', '.join(parts)} SELECT {', '.join(values.values())} FROM {source}"
        await connection.exec_driver_sql(f"INSERT INTO {table} ({names}) {chosen}")
        print(f"{table}: {perf_counter() - started:.0f} s", flush=True)

    def _requests(self) -> dict[str, str]:
        other = one_of(_VERDICTS, 10_093)
        upstream, judge = f"(200.0 + 9000.0 * {_cubed(10_069)})", f"(8.0 + 300.0 * {_cubed(10_079)})"
        return {
            **self.of_request,
            "api": "'chat'",
            "resolved_model": self.of_request["model"],
            "key_prefix": "'gl-' || (i % 7)",
            "stream": f"({draw(10_091)} < 0.8)",
            "status": f"CASE {self.action} WHEN 'block' THEN 'blocked' ELSE 'completed' END",
            "http_status": "200",
            "action": self.action,
            "verdict": f"CASE {self.action} WHEN 'block' THEN 'has_contradictions' ELSE {other} END",
            "trust_score": f"(1.0 - 0.6 * {_cubed(10_099)})",
            "documents": "3",
            "sentences": "4",
            "prompt_tokens": "500 + i % 3001",
            "completion_tokens": "50 + i % 557",
            "usage_estimated": "(1 = 0)",
            "upstream_ms": upstream,
            "judge_ms": judge,
            "total_ms": f"({upstream} + {judge} + 1.0 + 8.0 * {_cubed(10_103)})",
            "finish_reason": "'stop'",
            "prompt": f"'sha256:{'0' * 64}'",
            "reply": f"'sha256:{'0' * 64}'",
            "extra": "'{}'",
            "regenerations": "0",
        }

    def _decisions(self) -> dict[str, str]:
        last = f"p = {DECISIONS - 1}"
        return {
            **self.of_request,
            "id": f"{self.of_request['request_id']} || '.0000' || p",
            "position": "p",
            "policy_id": "policy_id",
            "policy_version": "3",
            "policy_name": "policy_name",
            "category": "category",
            "phase": "CASE category WHEN 'retrieval' THEN 'before_workflow' ELSE 'after_workflow' END",
            "action": f"CASE WHEN {last} THEN {self.action} ELSE 'allow' END",
            "reason": "'Every claim is supported by the documents'",
            "reason_code": f"CASE WHEN {last} AND {self.action} <> 'allow' THEN {one_of(_CODES, 10_111)} END",
            "metadata": """'{"score": 0.93, "min_score": 0.7}'""",
            "latency_ms": f"(0.02 + 2.0 * {_cubed(10_133)})",
            "shadow": "(policy_id = 'pol_05')",
        }

    def _claims(self) -> dict[str, str]:
        flagged = f"{self.action} = 'block' AND p = 0"
        score = f"CASE WHEN {flagged} THEN 0.5 * {draw(10_069)} ELSE 1.0 - 0.6 * {_cubed(10_079)} END"
        same = {name: "p" for name in ("seq", "position", "sentence_index")}
        return {
            **{name: self.of_request[name] for name in ("request_id", "ts")},
            **same,
            "choice": "0",
            "start": "80 * p",
            "end": "80 * p + 79",
            "label": f"CASE WHEN {flagged} THEN 'contradicted' ELSE 'supported' END",
            "score": score,
            "confidence": score,
            "document_id": "'d1'",
            "document_index": "0",
            "evidence_start": "0",
            "evidence_end": "120",
            "delivered": "(1 = 1)",
            "judge_ms": "9.0",
            "extra": "'{}'",
        }

    def _documents(self) -> dict[str, str]:
        return {
            **{name: self.of_request[name] for name in ("request_id", "ts")},
            "position": "p",
            "document_id": "'d' || p",
            "source": "'handbook.pdf'",
            "collection": "'kb'",
            "relevance_score": "0.9 - p / 10.0",
            "age_days": "30.0",
            "kept": "(p < 3)",
            "reason": "CASE WHEN p = 3 THEN 'too old' END",
        }


def _cubed(prime: int) -> str:
    """Return SQL for a number from 0 to 1 that is small in most cases."""
    return f"({draw(prime)} * {draw(prime)} * {draw(prime)})"


async def fill(url: str, count: int, days: int, with_claims: int, jobs: int) -> None:
    """Insert the rows, through several connections if the database supports it, and create the indexes afterwards."""
    database = Database(url, command_timeout_s=None)
    rows = Rows(database.dialect, count, days, with_claims)
    indexes = [index for table in EVENT_TABLES for index in table.indexes]
    try:
        if database.dialect == "postgresql":
            month = month_of(rows.start)
            while month <= datetime.now(UTC):
                await create_months(database, month)
                month = next_month(month)
        async with database.write() as connection:
            for index in indexes:
                await connection.run_sync(index.drop)
        parts = [(count * job // jobs, count * (job + 1) // jobs - 1) for job in range(jobs)]
        await _each(parts, jobs, lambda connection, part: rows.fill(connection, *part), database)
        started = perf_counter()
        await _each(indexes, jobs, lambda connection, index: connection.run_sync(index.create), database)
        async with database.write() as connection:
            await connection.execute(policies.insert(), _policies())
            await connection.execute(policy_versions.insert(), _policies(versions=True))
        print(f"indexes: {perf_counter() - started:.0f} s", flush=True)
        if database.dialect == "postgresql":
            async with database.write() as connection:
                await connection.execute(text("ANALYZE"))
    finally:
        await database.aclose()


async def _each(
    things: Iterable[T], jobs: int, work: Callable[[AsyncConnection, T], Awaitable[None]], database: Database
) -> None:
    """Run ``work`` for each of ``things``, ``jobs`` at a time, in separate transactions."""
    left = iter(things)

    async def some() -> None:
        for thing in left:
            async with database.write() as connection:
                await work(connection, thing)

    async with asyncio.TaskGroup() as group:
        for _ in range(jobs):
            group.create_task(some())


def _policies(*, versions: bool = False) -> list[dict[str, Any]]:
    now = datetime.now(UTC)
    times = {"ts": now, "change": "create"} if versions else {"created_at": now, "updated_at": now}
    return [
        {
            "policy_id" if versions else "id": id,
            "name": name,
            "category": category,
            "rules": {},
            "scope": {},
            "enabled": True,
            "priority": 0,
            "mode": "shadow" if id == "pol_05" else "enforce",
            "canary_percent": 100,
            "version": 3,
            **times,
        }
        for id, (name, category) in POLICIES.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="URL of an empty database")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--with-claims", type=int, default=WITH_CLAIMS, help="newest requests with claims")
    parser.add_argument("--jobs", type=int, default=1, help="concurrent connections (PostgreSQL only)")
    wanted = parser.parse_args()
    command.upgrade(alembic_config(wanted.url), _BEFORE_STATISTICS)
    asyncio.run(fill(wanted.url, wanted.requests, wanted.days, wanted.with_claims, wanted.jobs))
    started = perf_counter()
    upgrade(wanted.url)
    print(f"rollups filled by the migration: {perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
