"""Conditions on requests: how SQLite, which knows no statistics of a table, finds the rows."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, Select, create_engine, text
from sqlalchemy.dialects import postgresql, sqlite

from app.db.tables import EVENT_TABLES, metadata, requests
from app.events.filters import EventFilter
from app.events.sql_conditions import requests_matching

SINCE = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection, tables=list(EVENT_TABLES))
        yield connection
    engine.dispose()


def plan(connection: Connection, query: Select[tuple[str]]) -> list[str]:
    compiled = query.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
    return [row.detail for row in connection.execute(text(f"EXPLAIN QUERY PLAN {compiled}".replace(":", r"\:")))]


@pytest.mark.parametrize(
    "decided", [{"reason_code": "A"}, {"policy": "pol_1"}, {"phase": "after_workflow"}, {"policy": "p", "phase": "q"}]
)
def test_decisions_are_found_by_the_time_of_their_request(connection: Connection, decided: dict[str, str]) -> None:
    """Otherwise each request would search all decisions in the time range."""
    for times in ({}, {"since": SINCE}, {"since": SINCE, "until": SINCE + timedelta(days=1)}):
        found = plan(connection, requests_matching(EventFilter(**times, **decided), requests.c.request_id))
        (search,) = [line for line in found if line.startswith("SEARCH decisions")]
        assert "ts>" not in search
        assert "ts<" not in search


def test_partitions_are_still_chosen_by_time() -> None:
    query = requests_matching(EventFilter(since=SINCE, reason_code="A"), requests.c.request_id)
    assert "AND decisions.ts >= " in str(query.compile(dialect=postgresql.dialect()))


def test_order_is_read_from_its_index_whatever_the_filter(connection: Connection) -> None:
    query = requests_matching(EventFilter(agent="a", action="block"), requests.c.request_id, without_index=True)
    query = query.order_by(requests.c.total_ms.desc(), requests.c.request_id.desc()).limit(51)
    found = plan(connection, query)
    assert any("ix_requests_total_ms_request_id" in line for line in found)
    assert not any("TEMP B-TREE" in line for line in found)
