"""Fills a database with three weeks of fictitious traffic of a support team.

    python -m benchmarks.seed_traffic URL [--requests N] [--days N] [--alike N]

Several agents answer customers with a retrieval-augmented model. On the Tuesday of the last full week, a named person
relaxes the policy "Refund answers". Contradicted answers about refunds, which were blocked before, are now sent with a
warning. At the same time, a cheaper model takes over these questions. Reviewers have labelled some sentences. The
judge, the LLM judge and people disagree about some others. Texts are stored, so that they can be searched. Rows are
written as in the gateway, including rollups and the search index. For speed, they are written in large batches, and
indexes are built at the end where possible. Only one in ten requests is generated here. The database then makes nine
copies of it, a few milliseconds apart.
"""

import argparse
import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from time import perf_counter
from typing import Any

from orjson import dumps
from sqlalchemy import Connection, String, insert, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.auth.audit_log import acting_as, note
from app.auth.key_store import KeyDraft, KeyStore
from app.db.access_tables import audit
from app.db.database import Database
from app.db.partitions import create_months, month_of, next_month
from app.db.rollup_tables import STATISTICS
from app.db.schema import upgrade
from app.db.search_index import PARTITIONED, PER_MICROSECOND, add_entries, row_id
from app.db.tables import EVENT_TABLES, policies, policy_versions
from app.events.replay_data import claim_extra, request_extra
from app.events.rollups.rollup_update import add_to_rollups
from app.events.search.indexed_text import search_text
from app.events.serialization import score_summary
from app.events.storage.insert import store
from app.settings import StoreText
from benchmarks.support.seeded_reviews import add_reviews
from benchmarks.support.seeded_work import add_work
from judges.types import Claim, ClaimVerdict, Label, Span
from policies.base import JudgeOptions
from policies.registry import parse_rules
from policies.replay import ChoiceLog, RequestLog
from policies.types import PolicyInputs

REQUESTS, DAYS, ALIKE = 1_000_000, 21, 10
MOST_ALIKE = 16
"""The maximum number of requests with the same texts and numbers. Their ids differ only in the first digit, which has
16 values."""
PERSON = "mara.lindqvist"
_BATCH = 2_000
"""The number of requests per transaction."""
_CACHE_KB = 500_000

_AGENTS = {
    "refund-desk": ("Refund answers", ("refund", "return", "charge")),
    "delivery-desk": ("Delivery answers", ("parcel", "delivery", "address")),
    "account-help": ("Account answers", ("password", "account", "invoice")),
    "warranty-desk": ("Warranty answers", ("warranty", "repair", "battery")),
}
_MODELS = {"gpt-4o": 0.35, "gpt-4o-mini": 0.45, "claude-sonnet": 0.2}
_KEYS = ("Help centre", "Mobile app", "Agent assist", "Night shift")
_OPENINGS = ("How long does", "Can I change", "What happens to", "Who pays for", "Where do I find", "Why was")
_ENDINGS = ("after thirty days", "for a gift order", "without a receipt", "on a public holiday", "from another country")
_FACTS = (
    "The {thing} is confirmed within {days} working days.",
    "Customers receive a message about the {thing} by email.",
    "For a {thing}, keep the order number ready.",
    "A {thing} costs nothing within {days} days.",
    "Our team checks every {thing} by hand.",
)
_FALSE = "Every {thing} is possible at any time, without limits."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Policy:
    id: str
    name: str
    agent: str


_POLICIES = [
    _Policy(id=f"pol_{at:02d}", name=name, agent=agent) for at, (agent, (name, _)) in enumerate(_AGENTS.items())
]


class Traffic:
    """Generates the rows of requests in order of time. The same arguments always generate the same requests."""

    def __init__(self, count: int, days: int, now: datetime, keys: Sequence[str], *, seed: int = 24) -> None:
        self._dice = random.Random(seed)
        self._count, self._days, self._keys = count, days, keys
        self._start = (now - timedelta(days=days)).replace(minute=0, second=0, microsecond=0)
        self.tuesday = bad_tuesday(now)
        self._now = now

    def events(self) -> Iterator[dict[str, list[dict[str, Any]]]]:
        """Yield the rows of each request by table."""
        span = (self._now - self._start) / self._count
        for at in range(self._count):
            yield self._event(at, (self._start + span * at).replace(microsecond=0))

    def _event(self, number: int, ts: datetime) -> dict[str, list[dict[str, Any]]]:
        dice = self._dice
        # Customers write during the day.
        agent = dice.choices((*_AGENTS,), (5, 3, 2, 1))[0] if 6 <= ts.hour < 22 else dice.choice((*_AGENTS,))
        bad = agent == "refund-desk" and ts >= self.tuesday
        thing = dice.choice(_AGENTS[agent][1])
        wrong = dice.random() < (0.17 if bad else 0.02)
        action, status = "allow", "completed"
        if wrong:
            action, status = ("warn", "completed") if bad else ("block", "blocked")
        elif dice.random() < 0.05:
            action = "warn"
        elif dice.random() < 0.004:
            status = dice.choice(("upstream_error", "incomplete", "cancelled"))
        sentences = [
            each.format(thing=thing, days=dice.choice((2, 3, 5, 14, 30)))
            for each in dice.sample(_FACTS, dice.randint(2, 4))
        ]
        if wrong:
            sentences[-1] = _FALSE.format(thing=thing)
        model = "gpt-4o-mini" if bad else dice.choices((*_MODELS,), (*_MODELS.values(),))[0]
        of_request = {"request_id": f"req_{number:032x}", "ts": ts}
        shared = {**of_request, "run_id": None, "agent": agent, "model": model}
        verdict = "has_contradictions" if wrong else "has_unverifiable" if action == "warn" else "supported"
        trust = 1 - 1 / len(sentences) if action != "allow" else 1.0
        request = self._request(shared, action, status, verdict, trust, sentences, thing)
        policy = next(each for each in _POLICIES if each.agent == agent)
        claims = self._claims(of_request, sentences, verdict, delivered=status != "blocked")
        documents = [self._document(of_request, thing, position) for position in range(2)]
        return {
            "requests": [request | score_summary(claims, documents)],
            "decisions": [self._decision(shared, policy, action, wrong=wrong, version=2 if bad else 1)],
            "claims": claims,
            "documents": documents,
        }

    def _request(
        self,
        shared: Mapping[str, Any],
        action: str,
        status: str,
        verdict: str,
        trust: float,
        sentences: list[str],
        thing: str,
    ) -> dict[str, Any]:
        dice = self._dice
        question = f"{dice.choice(_OPENINGS)} a {thing} {dice.choice(_ENDINGS)}?"
        slow = 1.6 if shared["model"] == "gpt-4o" else 1.0
        upstream, judge = 420 * slow * dice.lognormvariate(0, 0.5), 22 * dice.lognormvariate(0, 0.4)
        return {
            **shared,
            "api": "chat.completions",
            "resolved_model": shared["model"],
            "key_prefix": dice.choice(self._keys),
            "stream": dice.random() < 0.8,
            "status": status,
            "http_status": 200,
            "action": action,
            "verdict": verdict,
            "trust_score": round(trust, 4),
            "documents": 2,
            "sentences": len(sentences),
            "prompt_tokens": dice.randint(350, 1_900),
            "completion_tokens": dice.randint(40, 220),
            "usage_estimated": False,
            "upstream_ms": round(upstream, 3),
            "judge_ms": round(judge, 3),
            "total_ms": round(upstream + judge + 2.5, 3),
            "finish_reason": "stop",
            "error": None,
            "prompt": f"You answer customers of a shop politely.\n{question} Order {dice.randint(10_000, 99_999)}.",
            "reply": " ".join(sentences),
            "extra": _replayable(trust, len(sentences), delivered=status != "blocked"),
            "regenerations": 0,
            "question": question,
        }

    def _decision(
        self, shared: Mapping[str, Any], policy: _Policy, action: str, *, wrong: bool, version: int
    ) -> dict[str, Any]:
        reasons = {
            "allow": "All claims are supported",
            "warn": "The reply contradicts a document" if wrong else "A claim is unverifiable",
            "block": "The reply contradicts a document",
        }
        code = "GROUNDING_CONTRADICTION" if wrong else "GROUNDING_LOW_SCORE"
        return {
            **shared,
            "id": f"{shared['request_id']}.00000",
            "position": 0,
            "policy_id": policy.id,
            "policy_version": version,
            "policy_name": policy.name,
            "category": "grounding",
            "phase": "after_workflow",
            "action": action,
            "reason": reasons[action],
            "reason_code": None if action == "allow" else code,
            "metadata": {},
            "latency_ms": 0.3,
            "shadow": False,
        }

    def _claims(
        self, of_request: Mapping[str, Any], sentences: Sequence[str], verdict: str, *, delivered: bool
    ) -> list[dict[str, Any]]:
        rows, start = [], 0
        labels = {"has_contradictions": "contradicted", "has_unverifiable": "unverifiable"}
        for at, sentence in enumerate(sentences):
            last = at == len(sentences) - 1
            label = labels.get(verdict, "supported") if last else "supported"
            score = round(self._dice.uniform(0.8, 1) if label == "supported" else self._dice.uniform(0, 0.4), 2)
            rows.append(
                {
                    **of_request,
                    **dict.fromkeys(("seq", "position", "sentence_index"), at),
                    "choice": 0,
                    "start": start,
                    "end": start + len(sentence),
                    "label": label,
                    "score": score,
                    "confidence": score,
                    "document_id": "handbook-0",
                    "document_index": 0,
                    "evidence_start": 0,
                    "evidence_end": 40,
                    "delivered": delivered,
                    "reason": None,
                    "judge_ms": 6.0,
                    "text": sentence,
                    "evidence": None,
                    "extra": _replayable_claim(sentence, at, start, label, score),
                }
            )
            start += len(sentence) + 1
        return rows

    def _document(self, of_request: Mapping[str, Any], thing: str, position: int) -> dict[str, Any]:
        return {
            **of_request,
            "position": position,
            "document_id": f"handbook-{position}",
            "source": "handbook.pdf",
            "collection": "support",
            "relevance_score": 0.9 - 0.2 * position,
            "age_days": float(self._dice.randint(1, 300)),
            "title": f"Handbook: {thing}",
            "url": None,
            "kept": True,
            "reason": None,
            "text": f"The {thing} is confirmed within 5 working days. Each {thing} has limits.",
        }


@cache  # there are few distinct values, and building one takes as long as all other rows of a request
def _replayable(trust: float, sentences: int, *, delivered: bool) -> dict[str, Any]:
    """Return the data that a simulation needs to evaluate the request again."""
    inputs = PolicyInputs(trust_score=round(trust, 4), coverage=1.0)
    sent = frozenset(range(sentences)) if delivered else frozenset[int]()
    choice = ChoiceLog(inputs=inputs, positions=(0, 1), delivered=sent)
    log = RequestLog(judging=JudgeOptions(), choices=[choice])
    return request_extra(log, StoreText.FULL)


@lru_cache(maxsize=100_000)
def _replayable_claim(sentence: str, at: int, start: int, label: str, score: float) -> dict[str, Any]:
    claim = Claim(text=sentence, span=Span(start, start + len(sentence)), sentence_index=at)
    contradicted = 1 - score if label == "contradicted" else 0.0
    verdict = ClaimVerdict(claim=claim, label=Label(label), entailed=score, contradicted=contradicted)
    return claim_extra(verdict, StoreText.FULL)


def bad_tuesday(now: datetime) -> datetime:
    """Return the Tuesday of the last full week, at ten in the morning."""
    monday = now - timedelta(days=now.weekday() + 7)
    return (monday + timedelta(days=1)).replace(hour=10, minute=0, second=0, microsecond=0)


async def seed(url: str, count: int, days: int, alike: int = 1) -> None:
    """Create the tables and fill them with ``count`` requests, in groups of ``alike`` requests that have the same texts
    and numbers. Raises DatabaseUnavailableError."""
    made, rest = divmod(count, alike)
    if rest or alike > MOST_ALIKE:
        raise ValueError(f"the number of alike requests must divide {count:,} and be at most {MOST_ALIKE}")
    await asyncio.to_thread(upgrade, url)
    database = Database(url, command_timeout_s=None)
    now = datetime.now(UTC).replace(microsecond=0)
    started = perf_counter()
    try:
        keys = [(await KeyStore(database).create(KeyDraft(name=name)))[0].prefix for name in _KEYS]
        traffic = Traffic(made, days, now, keys)
        await _policies(database, traffic, now - timedelta(days=days))
        if database.dialect == "postgresql":
            month = month_of(now - timedelta(days=days))
            while month <= now:
                await create_months(database, month)
                month = next_month(month)
        indexes = [index for table in PARTITIONED for index in table.indexes]
        indexes = [index for index in indexes if database.dialect == "postgresql" or index.table in EVENT_TABLES]
        async with database.write() as connection:
            for index in indexes:
                await connection.run_sync(index.drop)
        batch: list[dict[str, list[dict[str, Any]]]] = []
        for number, event in enumerate(traffic.events(), 1):
            batch.append(event)
            if len(batch) == _BATCH or number == made:
                await _write(database, batch)
                await _repeat(database, batch, alike)
                batch = []
                if number * alike % 100_000 == 0:
                    print(f"{number * alike:,} requests: {perf_counter() - started:.0f} s", flush=True)
        await _count_repeated(database, alike)
        await add_work(database, count, list(_AGENTS), list(_MODELS))
        for index in indexes:
            async with database.write() as connection:
                await _with_large_cache(connection)
                await connection.run_sync(index.create)
        await add_reviews(database)
        if database.dialect == "postgresql":  # as autovacuum would; a real SQLite database is never analyzed
            async with database.write() as connection:
                await connection.execute(text("ANALYZE"))
        print(f"{count:,} requests, with indexes: {perf_counter() - started:.0f} s", flush=True)
    finally:
        await database.aclose()


async def _write(database: Database, batch: list[dict[str, list[dict[str, Any]]]]) -> None:
    if database.dialect == "sqlite":
        refused = await store(database, batch)
        assert not refused
        return
    entries = [
        (event["requests"][0]["request_id"], event["requests"][0]["ts"], words)
        for event in batch
        if (words := search_text(event)) is not None
    ]

    def rollups(connection: Connection) -> None:
        add_to_rollups(connection, batch)
        add_entries(connection, entries)

    async with database.write() as connection:
        raw: Any = (await connection.get_raw_connection()).driver_connection
        for table in EVENT_TABLES:
            rows = [row for event in batch for row in event[table.name]]
            names = list(rows[0])
            records = [tuple(_copied(row[name]) for name in names) for row in rows]
            await raw.copy_records_to_table(table.name, records=records, columns=names)
        await connection.run_sync(rollups)


def _copied(value: Any) -> Any:
    return dumps(value).decode() if isinstance(value, dict) else value


async def _repeat(database: Database, batch: list[dict[str, list[dict[str, Any]]]], alike: int) -> None:
    """Repeat the requests of ``batch`` in the following milliseconds. The first digit of an id is the number of the
    copy."""
    if alike == 1:
        return
    sqlite = database.dialect == "sqlite"
    ts = "substr(ts, 1, 20) || printf('%06d', 1000 * k)" if sqlite else "ts + k * interval '1 millisecond'"
    id = "'req_' || {} || substr({}, 6)".format("printf('%x', k)" if sqlite else "to_hex(k)", "{}")
    numbers = " UNION ALL ".join(f"SELECT {k} AS k" for k in range(1, alike))
    first, last = batch[0]["requests"][0], batch[-1]["requests"][0]
    ends = {f"{name}_{end}": row[name] for end, row in (("a", first), ("z", last)) for name in ("request_id", "ts")}
    if sqlite:
        ends |= {"ts_a": f"{first['ts']:%Y-%m-%d %H:%M:%S.%f}", "ts_z": f"{last['ts']:%Y-%m-%d %H:%M:%S.%f}"}
    which = "request_id BETWEEN :request_id_a AND :request_id_z AND ts BETWEEN :ts_a AND :ts_z"
    async with database.write() as connection:
        await _with_large_cache(connection)
        for table in EVENT_TABLES if sqlite else PARTITIONED:
            new = {"ts": ts, "request_id": id.format("request_id"), "id": id.format("id")}
            names = [column.name for column in table.c if column.computed is None]
            columns, values = (
                ", ".join(each) for each in ([f'"{n}"' for n in names], [new.get(n, f'"{n}"') for n in names])
            )
            query = (
                f"INSERT INTO {table} ({columns}) SELECT {values} FROM {table}, ({numbers}) AS numbers WHERE {which}"
            )
            await connection.execute(text(query), ends)
        if sqlite:
            query = (
                f"INSERT INTO request_search (rowid, request_id, body)"
                f" SELECT request_search.rowid + {1_000 * PER_MICROSECOND} * k, {id.format('request_id')}, body"
                f" FROM request_search, ({numbers}) AS numbers WHERE request_search.rowid BETWEEN :a AND :z"
            )
            await connection.execute(text(query), {"a": row_id(first["ts"]), "z": row_id(last["ts"])})


async def _with_large_cache(connection: AsyncConnection) -> None:
    """Let SQLite keep the written pages in memory. With its default cache of two megabytes, it would read every page
    again and again."""
    if connection.dialect.name == "sqlite":
        await connection.exec_driver_sql(f"PRAGMA cache_size = -{_CACHE_KB}")


async def _count_repeated(database: Database, alike: int) -> None:
    """Multiply the rollups. Requests that are alike are in the same second."""
    async with database.write() as connection:
        for table in STATISTICS:
            names = [
                column.name for column in table.c if not column.primary_key and not isinstance(column.type, String)
            ]
            values = {name: table.c[name] * alike for name in names if not name.endswith("_max")}
            await connection.execute(update(table).values(values))


async def _policies(database: Database, traffic: Traffic, start: datetime) -> None:
    """Create the policies, and relax the policy for refunds on that Tuesday."""
    strict, relaxed = (
        parse_rules("grounding", {"contradiction_action": action, "min_citations": 0}).model_dump(mode="json")
        for action in ("block", "flag")
    )
    async with database.write() as connection:
        for policy in _POLICIES:
            changed = policy.name == "Refund answers"
            whole = {
                "name": policy.name,
                "category": "grounding",
                "scope": {"agents": [policy.agent], "models": [], "keys": []},
                "enabled": True,
                "priority": 0,
                "mode": "enforce",
                "canary_percent": 100,
            }
            versions = [(1, "create", start, strict)]
            versions += [(2, "update", traffic.tuesday, relaxed)] if changed else []
            version, _, updated, rules = versions[-1]
            times = {"created_at": start, "updated_at": updated}
            await connection.execute(
                insert(policies), {"id": policy.id, "version": version, "rules": rules, **times, **whole}
            )
            before = None
            for number, change, ts, rules in versions:
                row = {"policy_id": policy.id, "version": number, "change": change, "ts": ts, "rules": rules, **whole}
                await connection.execute(insert(policy_versions), row)
                with acting_as(f"cli:{PERSON}" if change == "update" else "config"):
                    after = {**whole, "rules": rules}
                    await note(connection, f"policy.{change}", policy.id, before=before, after=after)
                before = after
        by_person = audit.c.actor == f"cli:{PERSON}"
        await connection.execute(update(audit).where(by_person).values(ts=traffic.tuesday))
        await connection.execute(update(audit).where(~by_person).values(ts=start))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="URL of a database without requests, such as sqlite+aiosqlite:///traffic.db")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--alike", type=int, default=ALIKE, help="how many requests have the same texts and numbers")
    wanted = parser.parse_args()
    asyncio.run(seed(wanted.url, wanted.requests, wanted.days, wanted.alike))


if __name__ == "__main__":
    main()
