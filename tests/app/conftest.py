import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import make_url

from app.db.database import Database
from app.db.schema import upgrade
from app.events.records import ClaimRow, DocumentRow, RequestEvent, RequestRow
from policies.types import Action, Decision, Phase
from tests.support.storage.database_templates import put_tables

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return f"sqlite+aiosqlite:///{tmp_path}/groundlane.db"


_KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=_KINDS)
def empty_url(request: pytest.FixtureRequest, sqlite_url: str) -> Iterator[str]:
    """The URL of an empty database, of each kind."""
    if request.param == "sqlite":
        yield sqlite_url
        return
    with _postgres() as url:
        yield url


@contextmanager
def _postgres(*, like: str = "template1") -> Iterator[str]:
    """The URL of a new database on the named server, a copy of the database ``like``."""
    base = os.environ.get("GROUNDLANE_TEST_POSTGRES_URL")
    if base is None:
        pytest.skip("set GROUNDLANE_TEST_POSTGRES_URL (postgresql+asyncpg://…) to run this on PostgreSQL")
    name = f"groundlane_{uuid4().hex}"
    asyncio.run(_execute(base, f'CREATE DATABASE "{name}" TEMPLATE "{like}"'))
    try:
        yield make_url(base).set(database=name).render_as_string(hide_password=False)
    finally:
        asyncio.run(_execute(base, f'DROP DATABASE "{name}" WITH (FORCE)'))


async def _execute(url: str, statement: str) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    connection = await asyncpg.connect(make_url(url).set(drivername="postgresql").render_as_string(hide_password=False))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def postgres_tables() -> Iterator[str]:
    """The name of a PostgreSQL database with all tables, to be copied."""
    with _postgres() as url:
        upgrade(url)
        yield str(make_url(url).database)


@pytest.fixture(params=_KINDS)
def database_url(request: pytest.FixtureRequest, sqlite_url: str, tmp_path: Path) -> Iterator[str]:
    """The URL of a database with all tables, of each kind."""
    if request.param == "sqlite":
        put_tables(tmp_path / "groundlane.db")
        yield sqlite_url
        return
    with _postgres(like=request.getfixturevalue("postgres_tables")) as url:
        yield url


Open = Callable[[], AbstractAsyncContextManager[Database]]


@pytest.fixture
def open_database(database_url: str) -> Open:
    """Opens the database, once for each simulated worker."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Database]:
        # A locked file is to be seen as such at once; a server needs a moment to accept a connection.
        database = Database(database_url, busy_timeout_s=0.05 if database_url.startswith("sqlite") else 5.0)
        try:
            yield database
        finally:
            await database.aclose()

    return opened


def make_decision(**changes: Any) -> Decision:
    values: dict[str, Any] = {
        "policy_id": "pol_1",
        "policy_version": 3,
        "policy_name": "strict",
        "category": "retrieval",
        "phase": Phase.BEFORE_WORKFLOW,
        "action": Action.BLOCK,
        "reason": "Source age (400 days) exceeds max (90 days)",
        "reason_code": "RETRIEVAL_STALE_SOURCE",
        "metadata": {"age_days": 400, "max_age": 90},
        "latency_ms": 0.2,
    }
    return Decision(**values | changes)


def make_event(number: int = 0, *, decisions: tuple[Decision, ...] | None = None, **changes: Any) -> RequestEvent:
    values: dict[str, Any] = {
        "request_id": f"req_{number:06d}",
        "ts": EPOCH + timedelta(seconds=number),
        "api": "chat",
        "model": "gpt-4o-mini",
        "resolved_model": "gpt-4o-mini-2024-07-18",
        "agent": "research-agent",
        "run_id": None,
        "key_prefix": "gl-abc",
        "stream": True,
        "status": "completed",
        "http_status": 200,
        "action": "warn",
        "verdict": "has_contradictions",
        "trust_score": 0.5,
        "documents": 1,
        "sentences": 2,
        "prompt_tokens": 12,
        "completion_tokens": 34,
        "usage_estimated": False,
        "upstream_ms": 100.5,
        "judge_ms": 7.25,
        "total_ms": 120.0,
        "finish_reason": "stop",
        "error": None,
    }
    claim = {
        "choice": 0,
        "start": 0,
        "end": 20,
        "score": 0.9,
        "confidence": 0.9,
        "document_id": "d1",
        "document_index": 0,
        "evidence_start": 0,
        "evidence_end": 40,
        "delivered": True,
        "reason": None,
        "judge_ms": 3.5,
        "text": None,
        "evidence": None,
    }
    return RequestEvent(
        request=RequestRow(**values | changes),
        decisions=(make_decision(),) if decisions is None else decisions,
        claims=(
            ClaimRow(position=0, sentence_index=0, label="supported", **claim),
            ClaimRow(position=1, sentence_index=0, label="contradicted", **claim),
            ClaimRow(position=2, sentence_index=1, label="supported", **claim),
        ),
        documents=(
            DocumentRow(
                position=0,
                document_id="d1",
                source="faq.pdf",
                collection="kb",
                relevance_score=0.91,
                age_days=14.0,
                title=None,
                url=None,
                kept=True,
                reason=None,
                text=None,
            ),
        ),
    )


@pytest.fixture
def event() -> Callable[..., RequestEvent]:
    """Creates an event whose id and time are derived from the number."""
    return make_event


@pytest.fixture
def decision() -> Callable[..., Decision]:
    return make_decision


async def _until(condition: Callable[[], Any], deadline_s: float = 10.0) -> None:
    async with asyncio.timeout(deadline_s):
        while True:
            outcome = condition()
            if await outcome if asyncio.iscoroutine(outcome) else outcome:
                return
            await asyncio.sleep(0.005)


@pytest.fixture
def until() -> Callable[..., Any]:
    """Waits until a condition, plain or a coroutine, holds; fails after the deadline in seconds."""
    return _until
