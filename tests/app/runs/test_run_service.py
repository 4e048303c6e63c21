"""Runs over each kind of database: what several workers do at once, and what happens when something is away."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

from app.db.database import Database, DatabaseUnavailableError
from app.db.tables import policy_versions
from app.db.tables import runs as runs_table
from app.errors import RunError
from app.events.recorder import RequestRecorder
from app.events.records import RecordedRequest, RequestEvent
from app.policy_admin.policy_document import parse_document
from app.policy_admin.policy_store import PolicyStore
from app.runs.run_service import RunService
from app.settings import Settings
from judges.types import Chunk

pytestmark = pytest.mark.anyio

REPORT: dict[str, Any] = {
    "grounding_scores": [0.9],
    "citations": [],
    "unsupported_claims": [],
    "output_confidence": None,
}


@dataclass
class Events:
    written: list[RequestEvent] = field(default_factory=list)

    async def append(self, record: RecordedRequest) -> None:
        self.written.append(record.event())


@dataclass
class Worker:
    runs: RunService
    policies: PolicyStore
    database: Database
    events: Events


@pytest.fixture
def open_worker(database_url: str) -> Callable[[], AbstractAsyncContextManager[Worker]]:
    """Opens a worker process of the database."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Worker]:
        async with aclosing(Database(database_url, busy_timeout_s=60.0)) as database:
            policies, events = PolicyStore(database), Events()
            await policies.refresh()
            runs = RunService(
                database=database,
                settings=Settings(_env_file=None),
                engine=lambda: policies.engine,
                events=events,
            )
            yield Worker(runs, policies, database, events)

    return opened


def document(**values: Any) -> Chunk:
    return Chunk(**{"id": "", "text": "", **values})


def report(citation: str) -> dict[str, Any]:
    return {**REPORT, "citations": [citation]}


async def make_policy(worker: Worker, category: str, **rules: Any) -> str:
    made = await worker.policies.create(parse_document({"name": category, "category": category, "rules": rules}))
    return made.id


async def test_two_workers_that_record_at_once_lose_nothing(open_worker: Callable[[], Any]) -> None:
    async with open_worker() as first, open_worker() as second:
        run_id = (await first.runs.start(agent=None)).run.run_id
        async with asyncio.TaskGroup() as group:
            for number in range(12):
                runs = (first, second)[number % 2].runs
                group.create_task(runs.record_grounding(run_id, report(f"source {number}")))
        view = await second.runs.get(run_id)
    assert [step.seq for step in view.steps] == list(range(13))
    cited = sorted(name for step in view.steps for name in step.data.get("citations", ()))
    assert cited == sorted(f"source {number}" for number in range(12))


async def test_of_two_workers_that_complete_a_run_at_once_one_does(open_worker: Callable[[], Any]) -> None:
    async with open_worker() as first, open_worker() as second:
        run_id = (await first.runs.start(agent=None)).run.run_id
        ends = await asyncio.gather(
            *(worker.runs.complete(run_id, None) for worker in (first, second)), return_exceptions=True
        )
    (error,) = [end for end in ends if isinstance(end, RunError)]
    assert (error.status, error.code) == (409, "run_completed")


async def test_a_document_one_too_many_is_found_whichever_worker_took_the_others(
    open_worker: Callable[[], Any],
) -> None:
    async with open_worker() as first, open_worker() as second:
        await make_policy(first, "retrieval", max_chunks=3, action_on_chunk_violation="block")
        run_id = (await first.runs.start(agent=None)).run.run_id
        taken = await asyncio.gather(
            *((first, second)[number % 2].runs.record_document(run_id, document(age_days=1)) for number in range(4))
        )
    assert sorted(one.outcome.action.value for one in taken) == ["allow", "allow", "allow", "block"]


async def test_a_worker_that_does_not_know_a_policy_yet_judges_by_it_all_the_same(
    open_worker: Callable[[], Any],
) -> None:
    async with open_worker() as first, open_worker() as second:
        policy_id = await make_policy(first, "retrieval", max_source_age_days=10)
        assert second.policies.loaded_versions == {}
        run_id = (await first.runs.start(agent=None)).run.run_id
        taken = await second.runs.record_document(run_id, document(age_days=11))
    (decision,) = taken.outcome.decisions
    assert (decision["policy_id"], decision["action"]) == (policy_id, "block")


async def test_a_run_whose_policy_can_no_longer_be_read_goes_no_further(open_worker: Callable[[], Any]) -> None:
    async with open_worker() as first, open_worker() as second:
        policy_id = await make_policy(first, "retrieval")
        run_id = (await first.runs.start(agent=None)).run.run_id
        of_policy = policy_versions.c.policy_id == policy_id
        async with first.database.write() as connection:
            await connection.execute(update(policy_versions).where(of_policy).values(rules={"of_another_age": True}))
        with pytest.raises(RunError, match="can no longer be read"):
            await second.runs.record_document(run_id, document())
        async with first.database.write() as connection:
            await connection.execute(delete(policy_versions).where(of_policy))
        with pytest.raises(RunError, match="can no longer be read"):
            await second.runs.get(run_id)


async def test_the_steps_of_a_run_go_with_it(open_worker: Callable[[], Any]) -> None:
    async with open_worker() as worker:
        run_id = (await worker.runs.start(agent=None)).run.run_id
        async with worker.database.write() as connection:
            await connection.execute(delete(runs_table).where(runs_table.c.run_id == run_id))
        with pytest.raises(RunError, match="does not exist"):
            await worker.runs.record_grounding(run_id, REPORT)


async def test_characters_that_a_database_refuses_do_not_cost_the_step(open_worker: Callable[[], Any]) -> None:
    async with open_worker() as worker:
        run_id = (await worker.runs.start(agent="a\0", model="m\0")).run.run_id
        await worker.runs.record_grounding(run_id, report("a\0b"))
        await worker.runs.record_document(run_id, document(source="c\0d", relevance_score=0.9))
        view = await worker.runs.get(run_id)
    assert view.steps[1].data["citations"] == ["a\N{REPLACEMENT CHARACTER}b"]


async def test_while_the_database_is_away_requests_are_ruled_by_the_policies_in_force(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/missing/groundlane.db")
    store = PolicyStore(database)
    runs = RunService(
        database=database, settings=Settings(_env_file=None), engine=lambda: store.engine, events=Events()
    )
    assert await runs.join("run_" + "0" * 32, agent=None, key=None) is None
    with pytest.raises(DatabaseUnavailableError):
        await runs.start(agent=None)
    await database.aclose()


async def test_a_request_that_ends_after_its_run_keeps_its_reply(
    open_worker: Callable[[], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_worker() as worker:
        run_id = (await worker.runs.start(agent=None)).run.run_id
        joined = await worker.runs.join(run_id, agent=None, key=None)
        await worker.runs.complete(run_id, None)
        assert joined is not None
        await joined.add(RequestRecorder(api="chat.completions", store_text=worker.runs.settings.store_text).record())
        view = await worker.runs.get(run_id)
    assert [step.kind for step in view.steps] == ["start", "complete"]
    assert "run_call_lost" in capsys.readouterr().out
