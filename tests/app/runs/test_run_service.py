"""The run service on SQLite and PostgreSQL, with concurrent workers and with unavailable components."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

from app.auth import GatewayKey
from app.db.database import Database, DatabaseUnavailableError
from app.db.tables import policy_versions
from app.db.tables import runs as runs_table
from app.errors import InvalidRequestError, RunError
from app.events.recorder import RequestRecorder
from app.policy_admin.policy_document import parse_document
from app.policy_admin.policy_store import PolicyStore
from app.runs.run_access import RunCaller
from app.runs.run_queries import RunQueries
from app.runs.run_service import RunService
from app.settings import Settings, StoreText
from judges.llm_types import LlmCall, LlmScore, ScoreRequest
from judges.types import Chunk
from tests.support.gateways.in_process_gateway import Events

pytestmark = pytest.mark.anyio

REPORT: dict[str, Any] = {
    "grounding_scores": [0.9],
    "citations": [],
    "unsupported_claims": [],
    "output_confidence": None,
}


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


async def test_concurrent_workers_lose_no_step(open_worker: Callable[[], Any]) -> None:
    async with open_worker() as first, open_worker() as second:
        run_id = (await first.runs.start(agent=None)).run.run_id
        async with asyncio.TaskGroup() as group:
            for number in range(12):
                runs = (first, second)[number % 2].runs
                group.create_task(runs.record_grounding(run_id, report(f"[{number}]")))
        view = await second.runs.get(run_id)
    assert [step.seq for step in view.steps] == list(range(13))
    cited = sorted(name for step in view.steps for name in step.data.get("citations", ()))
    assert cited == sorted(f"[{number}]" for number in range(12))


async def test_only_one_of_two_concurrent_completions_wins(open_worker: Callable[[], Any]) -> None:
    async with open_worker() as first, open_worker() as second:
        run_id = (await first.runs.start(agent=None)).run.run_id
        ends = await asyncio.gather(
            *(worker.runs.complete(run_id, None) for worker in (first, second)), return_exceptions=True
        )
    (error,) = [end for end in ends if isinstance(end, RunError)]
    assert (error.status, error.code) == (409, "run_completed")


async def test_repeated_start_starts_one_run(open_worker: Callable[[], Any]) -> None:
    caller = RunCaller(repeat="call-1")
    async with open_worker() as first, open_worker() as second:
        await make_policy(first, "grounding", min_citations=2)
        await second.policies.refresh()
        starts = await asyncio.gather(*(each.runs.start(agent="a", caller=caller) for each in (first, second) * 3))
        await second.runs.record_grounding(starts[0].run.run_id, report("x"))
        last = await second.runs.start(agent="a", caller=caller)
        logged = [*first.events.written, *second.events.written]
    assert len({start.run.run_id for start in (*starts, last)}) == 1
    assert sorted(start.request_id is None for start in starts) == [False] + [True] * 5
    assert [event.request.api for event in logged] == ["runs.start", "runs.grounding"]
    assert (last.step, last.request_id, last.run.counts["citations"]) == (0, None, 1)
    assert [policy.name for policy in last.policies] == ["grounding"]


async def test_key_of_a_start_belongs_to_one_gateway_key_agent_and_model(open_worker: Callable[[], Any]) -> None:
    keys = [GatewayKey(id=name, name=name, prefix=f"gl-{name * 8}", digest=b"") for name in "ab"]
    async with open_worker() as worker:
        callers = [RunCaller(repeat="call-1"), *(RunCaller(key=key, repeat="call-1") for key in keys)]
        runs = [(await worker.runs.start(agent="x", model="m", caller=caller)).run.run_id for caller in callers]
        for agent, model in (("y", "m"), ("x", None)):
            with pytest.raises(InvalidRequestError, match="already used for a different call") as raised:
                await worker.runs.start(agent=agent, model=model, caller=callers[0])
            assert (raised.value.status, raised.value.param) == (409, "Idempotency-Key")
    assert len(set(runs)) == 3


@pytest.mark.parametrize("how", [StoreText.HASH, StoreText.NONE])
async def test_reported_citations_are_stored_without_their_text(open_worker: Callable[[], Any], how: StoreText) -> None:
    async with open_worker() as worker:
        runs = replace(worker.runs, settings=Settings(_env_file=None, store_text=how))
        await make_policy(worker, "grounding", min_citations=2, action_on_violation="block")
        run_id = (await runs.start(agent=None)).run.run_id
        for name in ("Drink bleach daily", "MANUAL.pdf", "manual.pdf"):
            await runs.record_grounding(run_id, report(name))
        await runs.record_document(run_id, document(source="manual.pdf"))
        open_view = await runs.get(run_id)
        end = await runs.complete(run_id, None)
        seen = [open_view, await runs.get(run_id), await RunQueries(worker.database).view(run_id, how)]
    assert not any("bleach" in str(step.data) for view in seen for step in view.steps)
    (decision,) = end.outcome.decisions
    assert (decision["action"], decision["metadata"]["citation_count"]) == ("allow", 2)


async def test_citations_stored_in_full_are_hidden_when_the_run_is_completed(open_worker: Callable[[], Any]) -> None:
    """The setting may change while the run is open."""
    async with open_worker() as worker:
        full = replace(worker.runs, settings=Settings(_env_file=None, store_text=StoreText.FULL))
        run_id = (await full.start(agent=None)).run.run_id
        await full.record_grounding(run_id, report("Drink bleach daily"))
        runs = replace(worker.runs, settings=Settings(_env_file=None, store_text=StoreText.HASH))
        seen = [await RunQueries(worker.database).view(run_id, StoreText.HASH)]
        await runs.complete(run_id, None)
        seen.append(await runs.get(run_id))
    assert not any("bleach" in str(step.data) for view in seen for step in view.steps)


CALL = LlmCall(mode="score", model="m", outcome="ok", prompt_tokens=400, completion_tokens=20, cost_usd=0.42)


async def scored_run(worker: Worker, score: Callable[..., Any]) -> tuple[RunService, str]:
    """Start a run whose result an LLM scores, with a document."""
    rules = {"llm_grounding_check": True, "llm_grounding_model": "m", "min_citations": 0}
    await make_policy(worker, "grounding", **rules)
    runs = replace(worker.runs, score=score)
    run_id = (await runs.start(agent=None)).run.run_id
    await runs.record_document(run_id, document(text="The lamp runs for 24 hours."))
    worker.events.written.clear()
    return runs, run_id


async def test_calls_for_the_score_of_a_result_are_in_its_event(open_worker: Callable[[], Any]) -> None:
    async def score(request: ScoreRequest, _text: str, _documents: Any) -> LlmScore:
        return LlmScore(request=request, score=0.9, calls=(CALL, CALL))

    async with open_worker() as worker:
        runs, run_id = await scored_run(worker, score)
        await runs.complete(run_id, "It runs for 24 hours.")
        (event,) = worker.events.written
    assert event.request.status == "completed"
    used = event.request.extra["llm"]
    assert (used["calls"], used["prompt_tokens"], used["cost_usd"]) == (2, 800, 0.84)


@pytest.mark.parametrize("repeat", [None, "end"])
async def test_calls_for_a_result_that_is_not_recorded_are_logged(
    open_worker: Callable[[], Any], repeat: str | None
) -> None:
    """Another call completes the run while the LLM scores the result."""
    async with open_worker() as worker:

        async def score(request: ScoreRequest, _text: str, _documents: Any) -> LlmScore:
            await worker.runs.complete(run_id, None, caller=RunCaller(repeat=repeat))
            return LlmScore(request=request, score=0.9, calls=(CALL,))

        runs, run_id = await scored_run(worker, score)
        with nullcontext() if repeat else pytest.raises(RunError, match="is complete"):
            await runs.complete(run_id, "It runs for 24 hours.", caller=RunCaller(repeat=repeat))
        completed, unused = worker.events.written
    assert (completed.request.status, completed.request.extra.get("llm")) == ("completed", None)
    assert (unused.request.status, unused.request.extra["llm"]["cost_usd"]) == ("failed", 0.42)


async def test_surplus_document_is_found_across_workers(
    open_worker: Callable[[], Any],
) -> None:
    async with open_worker() as first, open_worker() as second:
        await make_policy(first, "retrieval", max_chunks=3, action_on_chunk_violation="block")
        run_id = (await first.runs.start(agent=None)).run.run_id
        taken = await asyncio.gather(
            *((first, second)[number % 2].runs.record_document(run_id, document(age_days=1)) for number in range(4))
        )
    assert sorted(one.outcome.action.value for one in taken) == ["allow", "allow", "allow", "block"]


async def test_worker_judges_by_a_policy_it_has_not_loaded_yet(
    open_worker: Callable[[], Any],
) -> None:
    async with open_worker() as first, open_worker() as second:
        policy_id = await make_policy(first, "retrieval", max_source_age_days=10)
        assert second.policies.loaded_versions == {}
        run_id = (await first.runs.start(agent=None)).run.run_id
        taken = await second.runs.record_document(run_id, document(age_days=11))
    (decision,) = taken.outcome.decisions
    assert (decision["policy_id"], decision["action"]) == (policy_id, "block")


async def test_run_with_an_unreadable_policy_stops(open_worker: Callable[[], Any]) -> None:
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


async def test_steps_are_deleted_with_their_run(open_worker: Callable[[], Any]) -> None:
    async with open_worker() as worker:
        run_id = (await worker.runs.start(agent=None)).run.run_id
        async with worker.database.write() as connection:
            await connection.execute(delete(runs_table).where(runs_table.c.run_id == run_id))
        with pytest.raises(RunError, match="does not exist"):
            await worker.runs.record_grounding(run_id, REPORT)


async def test_characters_that_databases_reject_do_not_lose_the_step(open_worker: Callable[[], Any]) -> None:
    async with open_worker() as worker:
        runs = replace(worker.runs, settings=Settings(_env_file=None, store_text=StoreText.FULL))
        run_id = (await runs.start(agent="a\0", model="m\0")).run.run_id
        await runs.record_grounding(run_id, report("a\0b"))
        await worker.runs.record_document(run_id, document(source="c\0d", relevance_score=0.9))
        view = await worker.runs.get(run_id)
    assert view.steps[1].data["citations"] == ["a\N{REPLACEMENT CHARACTER}b"]


async def test_model_scope_matches_the_names_at_the_upstreams(open_worker: Callable[[], Any]) -> None:
    async with open_worker() as worker:
        scoped = {"name": "age", "category": "retrieval", "rules": {}, "scope": {"models": ["real-*"]}}
        await worker.policies.create(parse_document(scoped))
        worker.runs.names_of = lambda model: (model, "real-1") if model == "fast" else model
        actions = {}
        for model in ("fast", "slow", "real-2"):
            run_id = (await worker.runs.start(agent=None, model=model)).run.run_id
            stale = document(relevance_score=0.9, age_days=400.0)
            actions[model] = (await worker.runs.record_document(run_id, stale)).outcome.action
    assert actions == {"fast": "block", "slow": "allow", "real-2": "block"}


async def test_current_policies_apply_while_the_database_is_unavailable(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/missing/groundlane.db")
    store = PolicyStore(database)
    runs = RunService(
        database=database, settings=Settings(_env_file=None), engine=lambda: store.engine, events=Events()
    )
    assert await runs.join("run_" + "0" * 32, agent=None, key=None) is None
    with pytest.raises(DatabaseUnavailableError):
        await runs.start(agent=None)
    await database.aclose()


async def test_request_that_outlasts_its_run_keeps_its_reply(
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
