"""Rollups, compared with statistics counted from all rows."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from alembic import command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, delete, insert, inspect, select

from app.analytics.statistics import Statistics
from app.db.database import Database, DatabaseUnavailableError
from app.db.rollup_tables import STATISTICS, STATUSES, VERDICTS
from app.db.schema import alembic_config, upgrade
from app.db.tables import EVENT_TABLES
from app.events.filters import EventFilter, Key
from app.events.queries import EventQueries
from app.events.records import RequestEvent
from app.events.rollups.request_stats import RequestStats
from app.events.serialization import dump, event_rows, load
from app.events.storage.insert import store
from app.events.storage.retention import prune
from judges.types import ReplyVerdict
from policies.types import Action, Decision, Phase

Open = Callable[[], AbstractAsyncContextManager[Database]]
Event = Callable[..., RequestEvent]
MakeDecision = Callable[..., Decision]
START = datetime(2026, 1, 30, 22, tzinfo=UTC)
LONG = "n" * 300
BY: tuple[Literal["agent"], Literal["model"], Literal["policy"]] = ("agent", "model", "policy")

latency = st.one_of(st.sampled_from([0.0, 0.0625, 1.0, 64.0, 65536.0, 1e6]), st.floats(0.0, 3e5))
decided = st.fixed_dictionaries(
    {
        "policy_id": st.sampled_from(["pol_1", "pol_2"]),
        "phase": st.sampled_from([Phase.BEFORE_WORKFLOW, Phase.AFTER_WORKFLOW]),
        "action": st.sampled_from([Action.ALLOW, Action.BLOCK]),
        "reason_code": st.sampled_from([None, "R1", "R2"]),
        "latency_ms": latency,
    }
)
# About the ends of hours, of days and of a month.
moments = st.builds(
    lambda hours, micros: START + timedelta(hours=hours, microseconds=micros),
    st.integers(0, 60),
    st.sampled_from([0, 0, 1, -1, 1_800_000_000, 3_599_999_999]),
)
asked = st.fixed_dictionaries(
    {
        "ts": moments,
        "agent": st.sampled_from([None, "a", "b"]),
        "model": st.sampled_from([None, "m", LONG]),
        "action": st.sampled_from(["allow", "warn", "block"]),
        "verdict": st.sampled_from(VERDICTS),
        "status": st.sampled_from(STATUSES),
        "trust_score": st.none() | st.floats(0, 1),
        "prompt_tokens": st.none() | st.integers(0, 2**40),
        "completion_tokens": st.none() | st.integers(0, 1_000),
        "total_ms": latency,
        "upstream_ms": st.none() | latency,
        "judge_ms": st.none() | latency,
        "decisions": st.lists(decided, max_size=3),
        "shadow": st.lists(decided, max_size=1),
    }
)
filters = st.builds(
    EventFilter,
    since=st.none() | moments,
    until=st.none() | moments,
    agent=st.sampled_from([None, None, "a"]),
    model=st.sampled_from([None, None, LONG]),
    action=st.sampled_from([None, None, Action.BLOCK]),
    policy=st.sampled_from([None, None, "pol_2"]),
    phase=st.sampled_from([None, None, Phase.AFTER_WORKFLOW]),
    reason_code=st.sampled_from([None, None, "R1"]),
    shadow=st.sampled_from([None, None, True]),
)


# The same statistics, counted in the simplest way.


def matching(events: Iterable[RequestEvent], filter: EventFilter) -> list[RequestEvent]:
    def matches(event: RequestEvent) -> bool:
        of_decisions = (filter.policy, filter.phase, filter.reason_code, filter.shadow)
        decided = of_decisions == (None,) * 4 or bool(decisions_of([event], replace(filter, action=None)))
        return decided and named(event, filter) and filter.action in (None, event.request.action)

    return [event for event in events if matches(event)]


def named(event: RequestEvent, filter: EventFilter) -> bool:
    row = event.request
    in_time = (filter.since is None or filter.since <= row.ts) and (filter.until is None or row.ts < filter.until)
    return in_time and filter.agent in (None, row.agent) and filter.model in (None, row.model)


def decisions_of(events: Iterable[RequestEvent], filter: EventFilter) -> list[tuple[Decision, bool]]:
    names = {name: getattr(filter, name) for name in ("phase", "reason_code", "action")} | {"policy_id": filter.policy}
    return [
        (decision, shadow)
        for event in events
        if named(event, filter)
        for shadow, decisions in ((False, event.decisions), (True, event.shadow))
        for decision in decisions
        if filter.shadow in (None, shadow)
        and all(value in (None, getattr(decision, name)) for name, value in names.items())
    ]


def numbers_of(events: Sequence[RequestEvent]) -> dict[str, Any]:
    rows = [event.request for event in events]
    trusts = [row.trust_score for row in rows if row.trust_score is not None]
    times: dict[str, list[float]] = {
        "total": [row.total_ms for row in rows],
        "upstream": [row.upstream_ms for row in rows if row.upstream_ms is not None],
        "judge": [row.judge_ms for row in rows if row.judge_ms is not None],
        "gateway": [max(0.0, row.total_ms - (row.upstream_ms or 0) - (row.judge_ms or 0)) for row in rows],
    }
    return {
        "requests": len(rows),
        "actions": Counter(row.action for row in rows),
        "verdicts": Counter(row.verdict for row in rows),
        "statuses": Counter(row.status for row in rows),
        "prompt_tokens": sum(row.prompt_tokens or 0 for row in rows),
        "completion_tokens": sum(row.completion_tokens or 0 for row in rows),
        "trust": (len(trusts), pytest.approx(sum(trusts), abs=1e-6)),
        "times": {part: (len(taken), pytest.approx(sum(taken), abs=1e-3)) for part, taken in times.items() if taken},
    }


def told(numbers: RequestStats) -> dict[str, Any]:
    names = ("requests", "actions", "verdicts", "statuses", "prompt_tokens", "completion_tokens")
    return {
        **{name: getattr(numbers, name) for name in names},
        "trust": (numbers.trust_count, numbers.trust_sum),
        "times": {part: (times.count, times.sum_ms) for part, times in numbers.times.items()},
    }


async def check(statistics: Statistics, events: Sequence[RequestEvent], filter: EventFilter) -> None:
    found = matching(events, filter)
    totals = await statistics.totals(filter)
    assert told(totals) == numbers_of(found)
    assert set(totals.latency_ms) == set(totals.times)
    groups: dict[str, dict[str | None, list[RequestEvent]]] = {"agent": {}, "model": {}, "policy": {}}
    for event in found:
        groups["agent"].setdefault(event.request.agent, []).append(event)
        groups["model"].setdefault(event.request.model, []).append(event)
        for policy in {decision.policy_id for decision in (*event.decisions, *event.shadow)}:
            if filter.policy in (None, policy):
                groups["policy"].setdefault(policy, []).append(event)
    for by in BY:
        answer = {key and key[:200]: told(numbers) for key, numbers in await statistics.groups(filter, by)}
        assert answer == {key and key[:200]: numbers_of(of) for key, of in groups[by].items()}
    since, until = filter.since or START, filter.until or START + timedelta(hours=70)
    for seconds in (3_600, 21_600, 86_400):
        steps = await statistics.buckets(filter, seconds, since, until)
        by_time: dict[datetime, list[RequestEvent]] = {start: [] for start, _ in steps}
        for event in matching(found, EventFilter(since=since, until=until)):
            by_time[datetime.fromtimestamp(event.request.ts.timestamp() // seconds * seconds, UTC)].append(event)
        assert {start: told(numbers) for start, numbers in steps} == {s: numbers_of(of) for s, of in by_time.items()}
    found_phases = {
        (one.of["phase"], one.decisions): (one.actions, one.reason_codes) for one in await statistics.phases(filter)
    }
    phases: dict[Phase, list[Decision]] = {}
    for one, _ in decisions_of(events, filter):
        phases.setdefault(one.phase, []).append(one)
    assert found_phases == {
        (phase, len(of)): (Counter(one.action for one in of), Counter(one.reason_code for one in of if one.reason_code))
        for phase, of in phases.items()
    }
    policies = await statistics.policies(filter)
    assert {(one.of["policy_id"], one.of["shadow"]): one.decisions for one in policies} == Counter(
        (one.policy_id, shadow) for one, shadow in decisions_of(events, filter)
    )
    assert all(one.of["policy_name"] == "strict" and one.latency_ms for one in policies)


async def check_pages(database: Database, events: Sequence[RequestEvent], filter: EventFilter) -> None:
    """Lists, which search only the hours with matching rows, return all rows in order."""
    queries = EventQueries(database)
    found: list[str] = []
    after: Key | None = None
    while True:
        page = await queries.requests(filter, limit=2, after=after)
        found += [row["request_id"] for row in page.items]
        if (after := page.next) is None:
            break
    newest = sorted(matching(events, filter), key=lambda event: (event.request.ts, event.request.request_id))
    assert found == [event.request.request_id for event in reversed(newest)]
    rows = [row async for row in queries.all_events(filter)]
    assert rows == sorted(rows, key=lambda row: (row["ts"], row["id"]), reverse=True)
    assert Counter((row["policy_id"], row["reason_code"], row["shadow"]) for row in rows) == Counter(
        (one.policy_id, one.reason_code, shadow) for one, shadow in decisions_of(events, filter)
    )


async def emptied(database: Database) -> None:
    async with database.write() as connection:
        for table in (*reversed(EVENT_TABLES), *STATISTICS):
            await connection.execute(delete(table))


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(st.lists(asked, max_size=12), filters, moments, st.randoms(use_true_random=False))
def test_rollups_equal_counts_of_the_rows(
    open_database: Open, event: Event, decision: MakeDecision, requests: Any, filter: Any, before: Any, chance: Any
) -> None:
    """Rollups are correct in whatever order events arrive, even twice (from a replayed journal), and after pruning."""

    def made(number: int, values: dict[str, Any]) -> RequestEvent:
        decisions, shadow = (tuple(decision(**each) for each in values.pop(name)) for name in ("decisions", "shadow"))
        return replace(event(number, **values), decisions=decisions, shadow=shadow)

    async def run() -> None:
        events = [made(number, dict(values)) for number, values in enumerate(requests)]
        twice = [load(dump(event_rows(each))) for each in [*events, *chance.sample(events, len(events) // 2)]]
        chance.shuffle(twice)
        async with open_database() as database:
            await emptied(database)
            for start in range(0, len(twice), 5):
                assert await store(database, twice[start : start + 5]) == []
            for few in (0, len(events)):
                await check(Statistics(database, few=few), events, filter)
            await check_pages(database, events, filter)
            await prune(database, before, batch=2)
            left = [each for each in events if each.request.ts >= before]
            await check(Statistics(database, few=0), left, filter)

    asyncio.run(run())


async def counted(database: Database) -> dict[str, list[Any]]:
    """The rows of both tables, in the order of their keys."""
    found: dict[str, list[Any]] = {}
    async with database.read() as connection:
        for table in STATISTICS:
            rows = await connection.execute(select(table).order_by(*table.primary_key))
            found[table.name] = [{**row._mapping} for row in rows]
    return found


def spread(event: Event, decision: MakeDecision, count: int) -> list[RequestEvent]:
    """Requests of all kinds over three days, with log-normal latencies around 100 ms."""
    chance = random.Random(7)
    return [
        replace(
            event(
                number,
                ts=START + timedelta(seconds=chance.randrange(3 * 86_400)),
                agent=chance.choice([None, "a", "b"]),
                model=chance.choice(["m", LONG]),
                action=chance.choice(["allow", "block"]),
                verdict=chance.choice(VERDICTS),
                status=chance.choice(STATUSES),
                trust_score=chance.choice([None, chance.random()]),
                prompt_tokens=chance.choice([None, 12]),
                total_ms=chance.lognormvariate(4.6, 0.7),
                upstream_ms=chance.choice([None, 40.0]),
                judge_ms=chance.choice([None, 64.0]),
            ),
            decisions=tuple(
                decision(policy_id=chance.choice(["pol_1", "pol_2"]), latency_ms=chance.expovariate(5.0))
                for _ in range(chance.randrange(3))
            ),
        )
        for number in range(count)
    ]


def test_migration_counts_existing_rows(empty_url: str, event: Event, decision: MakeDecision) -> None:
    """The migration counts in SQL. For the same events, the writer produces the same rows."""
    rows = [event_rows(each) for each in spread(event, decision, 60)]

    async def run(action: Callable[[Database], Awaitable[Any]]) -> Any:
        database = Database(empty_url)
        try:
            return await action(database)
        finally:
            await database.aclose()

    def columns(connection: Connection, table: str) -> set[str]:
        return {column["name"] for column in inspect(connection).get_columns(table)}

    async def put(database: Database) -> None:
        async with database.write() as connection:
            for table in EVENT_TABLES:
                there = await connection.run_sync(columns, table.name)
                events = [row for each in rows for row in each[table.name]]
                await connection.execute(
                    insert(table), [{name: row[name] for name in row if name in there} for row in events]
                )

    async def written(database: Database) -> dict[str, list[Any]]:
        await emptied(database)
        assert await store(database, rows) == []
        return await counted(database)

    command.upgrade(alembic_config(empty_url), "0006")
    asyncio.run(run(put))
    upgrade(empty_url)
    filled = asyncio.run(run(counted))
    assert len(filled["request_statistics"]) > 60
    expected = asyncio.run(run(written))
    for name, found in filled.items():
        assert [[*map(near, row.values())] for row in found] == [list(row.values()) for row in expected[name]]


def near(value: Any) -> Any:
    """Floating-point sums depend slightly on the order."""
    return pytest.approx(value) if isinstance(value, float) else value


def test_concurrent_rollup_updates_lose_nothing(open_database: Open, event: Event, decision: MakeDecision) -> None:
    events = spread(event, decision, 120)

    async def run() -> None:
        async with open_database() as one, open_database() as other:
            async with asyncio.TaskGroup() as group:
                for start in range(0, len(events), 10):
                    batch = [event_rows(each) for each in events[start : start + 10]]
                    # Both write each batch, as if one had replayed the other's journal.
                    for database in (one, other):
                        group.create_task(patiently(database, batch))
            await check(Statistics(one, few=0), events, EventFilter())

    asyncio.run(run())


async def patiently(database: Database, batch: Any) -> None:
    """On SQLite, writers wait for each other, possibly longer than the test's timeout."""
    while True:
        try:
            assert await store(database, batch) == []
            return
        except DatabaseUnavailableError:
            await asyncio.sleep(0.01)


def test_percentiles_from_histograms_are_close(open_database: Open, event: Event, decision: MakeDecision) -> None:
    events = spread(event, decision, 400)

    async def run() -> None:
        async with open_database() as database:
            assert await store(database, [event_rows(each) for each in events]) == []
            exact = (await Statistics(database).totals(EventFilter())).latency_ms
            near = (await Statistics(database, few=0).totals(EventFilter())).latency_ms
            assert near["total"] == {name: pytest.approx(value, rel=0.25) for name, value in exact["total"].items()}
            # All values are equal: one is the upper end of a bin, and no percentile exceeds the maximum.
            assert (near["judge"]["p99"], near["judge"]["max"]) == (pytest.approx(64.0, rel=0.01), 64.0)
            assert near["upstream"]["p99"] == near["upstream"]["max"] == 40.0

    asyncio.run(run())


def test_every_verdict_has_a_column() -> None:
    assert set(VERDICTS) == {verdict.value for verdict in ReplyVerdict}
