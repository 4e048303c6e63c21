"""Tables with rows, upgraded to this version and downgraded again."""

import asyncio
import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from msgspec.structs import replace
from sqlalchemy import Connection, insert, inspect, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.database import Database
from app.db.rollup_tables import decision_statistics, request_statistics
from app.db.schema import SchemaError, alembic_config, upgrade
from app.db.tables import EVENT_TABLES, feedback, requests
from app.events.queries import EventQueries
from app.events.records import RequestEvent
from app.events.search.matches import TextMatches
from app.events.search.search_query import phrases_of
from app.events.serialization import event_rows, score_summary
from app.events.storage.insert import store

T = TypeVar("T")
NAMES = [table.name for table in (*EVENT_TABLES, feedback)]
KEYS = {
    "requests": ["request_id"],
    "decisions": ["id"],
    "claims": ["request_id", "seq"],
    "documents": ["request_id", "position"],
}
YEAR = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = (YEAR - timedelta(microseconds=1), YEAR, YEAR + timedelta(days=45, microseconds=123456))


def on(url: str, action: Callable[[Database], Any]) -> Any:
    async def run() -> Any:
        database = Database(url)
        try:
            return await action(database)
        finally:
            await database.aclose()

    return asyncio.run(run())


LATER = {"question", *score_summary((), ())}
"""The columns that requests didn't have at first."""


async def put_plain(database: Database, events: list[RequestEvent]) -> None:
    """Rows as they were stored before every row had a time and requests had a question."""
    async with database.write() as connection:
        for event in events:
            for name, rows in event_rows(event).items():
                timed = name in ("requests", "decisions")
                later = LATER if timed else {"ts"}
                plain = [{key: row[key] for key in row if key not in later} for row in rows]
                await connection.execute(insert(next(table for table in EVENT_TABLES if table.name == name)), plain)
        mark = {"id": "fb", "request_id": events[1].request.request_id, "correct": True, "created_at": YEAR}
        await connection.execute(insert(feedback), mark)


async def put_without_question(database: Database, events: list[RequestEvent]) -> None:
    """Rows as they were before requests had a question, or a summary of their scores."""
    async with database.write() as connection:
        for name in ("requests", "decisions", "claims", "documents"):
            table = next(table for table in EVENT_TABLES if table.name == name)
            rows = [
                {key: row[key] for key in row if key not in LATER}
                for event in events
                for row in event_rows(event)[name]
            ]
            for start in range(0, len(rows), 200):
                await connection.execute(insert(table), rows[start : start + 200])


async def shape(database: Database) -> dict[str, Any]:
    """Columns, keys and indexes of the tables of the event log."""

    def read(connection: Connection) -> dict[str, Any]:
        found = inspect(connection)
        return {
            name: (
                [(column["name"], str(column["type"]), column["nullable"]) for column in found.get_columns(name)],
                found.get_pk_constraint(name)["constrained_columns"],
                [(key["name"], key["referred_table"], key["options"]) for key in found.get_foreign_keys(name)],
                sorted((index["name"], tuple(index["column_names"])) for index in found.get_indexes(name)),
            )
            for name in NAMES
        }

    async with database.read() as connection:
        return await connection.run_sync(read)


async def rows(database: Database) -> dict[str, Any]:
    async with database.read() as connection:
        return {name: await _sorted_rows(connection, name) for name in NAMES}


async def _sorted_rows(connection: AsyncConnection, name: str) -> list[str]:
    return sorted(str(sorted(row._mapping.items())) for row in await connection.execute(text(f"SELECT * FROM {name}")))


async def places(database: Database) -> list[tuple[str, str]]:
    query = text("SELECT request_id, tableoid::regclass::text FROM claims WHERE seq = 0 ORDER BY request_id")
    async with database.read() as connection:
        return [(row[0], row[1]) for row in await connection.execute(query)]


async def keys(database: Database) -> dict[str, list[str]]:
    return {name: key for name, (_, key, _, _) in (await shape(database)).items() if name != "feedback"}


def test_event_log_is_partitioned_by_month_and_back(empty_url: str, event: Callable[..., RequestEvent]) -> None:
    events = [event(number, ts=ts) for number, ts in enumerate(TIMES)]
    config = alembic_config(empty_url)
    command.upgrade(config, "0005")
    on(empty_url, lambda database: put_plain(database, events))
    before = on(empty_url, shape), on(empty_url, rows)
    for _ in range(2):
        upgrade(empty_url)
        sqlite = empty_url.startswith("sqlite")
        assert on(empty_url, keys) == {name: [*key, *([] if sqlite else ["ts"])] for name, key in KEYS.items()}
        if not sqlite:
            assert on(empty_url, places) == [
                ("req_000000", "claims_2025_12"), ("req_000001", "claims_2026_01"), ("req_000002", "claims_2026_02"),
            ]  # fmt: skip
        # Every row is as it would be written now, so writing it again adds nothing.
        assert on(empty_url, lambda database: store(database, [event_rows(each) for each in events])) == []
        for number, ts in enumerate(TIMES):
            trace = on(empty_url, lambda database, number=number: EventQueries(database).trace(f"req_{number:06d}"))
            assert trace["request"]["ts"] == ts
            assert [len(trace[part]) for part in ("documents", "decisions", "sentences")] == [1, 1, 2]
        assert on(empty_url, times) == {ts: 3 for ts in TIMES}
        command.downgrade(config, "0005")
        assert (on(empty_url, shape), on(empty_url, rows)) == before


async def times(database: Database) -> dict[datetime, int]:
    """The number of claims per time."""
    claims = EVENT_TABLES[2]
    found: dict[datetime, int] = {}
    async with database.read() as connection:
        for ts in (await connection.execute(select(claims.c.ts))).scalars():
            found[ts] = found.get(ts, 0) + 1
    return found


def test_statistics_survive_upgrade_and_downgrade(empty_url: str, event: Callable[..., RequestEvent]) -> None:
    events = [event_rows(event(number, ts=ts)) for number, ts in enumerate(TIMES)]

    async def counted(database: Database) -> dict[str, list[str]]:
        async with database.read() as connection:
            moved = request_statistics, decision_statistics
            return {table.name: await _sorted_rows(connection, table.name) for table in moved}

    async def parts(database: Database) -> set[tuple[int, bool, str]]:
        query = text("SELECT step, policy_id = '', tableoid::regclass::text FROM request_statistics")
        async with database.read() as connection:
            return {(row[0], row[1], row[2]) for row in await connection.execute(query)}

    upgrade(empty_url)
    assert on(empty_url, lambda database: store(database, events)) == []
    before = on(empty_url, counted)
    assert all(len(found) > len(TIMES) for found in before.values())
    if empty_url.startswith("postgresql"):
        assert on(empty_url, parts) == {
            (3_600, True, "request_statistics_hours_all"), (3_600, False, "request_statistics_hours_each"),
            (86_400, True, "request_statistics_days_all"), (86_400, False, "request_statistics_days_each"),
        }  # fmt: skip
    for turn in (lambda: command.downgrade(alembic_config(empty_url), "0007"), lambda: upgrade(empty_url)):
        turn()
        assert on(empty_url, counted) == before


SEARCHES = ("question 17", "zoe cafe", '"answer 3"', "返金", "answ*", "unknown word")


async def found_by_search(database: Database) -> dict[str, list[tuple[str, datetime]]]:
    async with database.read() as connection:
        return {
            search: await TextMatches(connection, phrases_of(search), since=None, until=None).next(5_000)
            for search in SEARCHES
        }


def test_texts_that_were_stored_before_the_search_index_are_found(
    empty_url: str, event: Callable[..., RequestEvent]
) -> None:
    """More than the migration reads at once, several of them at the same time, and some of which only hashes are
    stored."""
    count, hashed = 1_201, "sha256:" + "0" * 64
    texts = [
        (f"Question {n} about Zoë's CAFÉ", f"Answer {n % 7} 返金") if n % 10 else (hashed, hashed) for n in range(count)
    ]
    events = [
        event(n, ts=YEAR + timedelta(days=n // 60, seconds=n // 4), prompt=prompt, reply=reply)
        for n, (prompt, reply) in enumerate(texts)
    ]
    upgrade(empty_url)
    command.downgrade(alembic_config(empty_url), "0015")
    on(empty_url, lambda database: put_without_question(database, events))
    upgrade(empty_url)
    by_search: dict[str, Callable[[int], bool]] = {
        "question 17": lambda n: n == 17,
        "zoe cafe": lambda n: True,
        '"answer 3"': lambda n: n % 7 == 3,
        "返金": lambda n: True,
        "answ*": lambda n: True,
        "unknown word": lambda n: False,
    }
    found = on(empty_url, found_by_search)
    for search, matches in by_search.items():
        wanted = {events[n].request.request_id for n in range(count) if n % 10 and matches(n)}
        assert {id for id, _ in found[search]} == wanted, search
        times = [ts for _, ts in found[search]]
        assert times == sorted(times, reverse=True)
    # The index is the one that the gateway goes on with.
    assert (
        on(empty_url, lambda database: store(database, [event_rows(event(5_000, prompt="Question 17", reply="New"))]))
        == []
    )
    assert len(on(empty_url, found_by_search)["question 17"]) == 2


def test_scores_of_earlier_requests_are_summarized(empty_url: str, event: Callable[..., RequestEvent]) -> None:
    """Claims without a verdict and documents that were dropped don't count. A request may have neither score."""
    events = [event(number, ts=ts) for number, ts in enumerate(TIMES)]
    claim, document = events[0].claims[0], events[0].documents[0]
    scored = [
        ("supported", 0.9, None),
        ("unverifiable", 0.2, None),
        ("not_a_claim", 0.0, None),
        ("supported", 0.1, "judge_timeout"),
        ("supported", None, None),
    ]
    claims = [
        replace(claim, position=position, label=label, score=score, reason=reason)
        for position, (label, score, reason) in enumerate(scored)
    ]
    documents = tuple(
        replace(document, position=position, relevance_score=score, kept=kept)
        for position, (score, kept) in enumerate([(0.8, True), (0.4, True), (0.1, False), (None, True)])
    )
    events[0] = dataclasses.replace(events[0], claims=claims, documents=documents)
    events[1] = dataclasses.replace(events[1], claims=(), documents=())

    async def summaries(database: Database) -> dict[str, tuple[float | None, ...]]:
        columns = requests.c[("request_id", *score_summary((), ()))]
        async with database.read() as connection:
            return {id: tuple(scores) for id, *scores in await connection.execute(select(*columns))}

    def approx(expected: tuple[float | None, ...]) -> Any:
        return tuple(None if value is None else pytest.approx(value) for value in expected)

    upgrade(empty_url)
    command.downgrade(alembic_config(empty_url), "0019")
    on(empty_url, lambda database: put_without_question(database, events[:2]))
    upgrade(empty_url)
    assert on(empty_url, lambda database: store(database, [event_rows(each) for each in events[2:]])) == []
    found = on(empty_url, summaries)
    assert found[events[0].request.request_id] == approx((0.2, 0.55, 0.4, 0.6))
    assert found[events[1].request.request_id] == (None, None, None, None)
    for each in events[:2]:  # A new request's summary is the same.
        assert approx(found[each.request.request_id]) == tuple(
            event_rows(each)["requests"][0][name] for name in score_summary((), ())
        )


def test_tables_of_a_later_version_are_left_alone(empty_url: str) -> None:
    upgrade(empty_url)

    async def from_the_future(database: Database) -> None:
        async with database.write() as connection:
            await connection.execute(text("update alembic_version set version_num = '9999'"))

    on(empty_url, from_the_future)
    with pytest.raises(SchemaError, match="later version"):
        upgrade(empty_url)


def test_migrations_are_numbered_in_one_chain() -> None:
    """Two branches that add the same number fail here rather than at an upgrade."""
    scripts = ScriptDirectory.from_config(alembic_config(""))
    chain = [(script.revision, script.down_revision) for script in reversed(list(scripts.walk_revisions()))]
    numbers = [f"{number:04d}" for number in range(1, len(chain) + 1)]
    assert chain == list(zip(numbers, [None, *numbers], strict=False))
    files = sorted(path.name for path in (Path(scripts.dir) / "versions").glob("*.py") if path.name != "__init__.py")
    assert [name.partition("_")[0] for name in files] == numbers
