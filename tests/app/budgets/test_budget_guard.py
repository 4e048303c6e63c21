"""Checking and counting, on SQLite and PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest

from app.budgets import BudgetDraft, BudgetGuard, BudgetStore, BudgetUnit
from app.db.database import Database, DatabaseUnavailableError
from app.errors import BudgetError, ConflictError, NotFoundError, UncountedError
from judges.concurrency import TaskScope
from tests.app.conftest import make_event

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]
KEY = "gl-aaaaaaaa"


def cost_of(model: str, prompt: int, completion: int) -> Decimal | None:
    return Decimal(prompt + completion) / 100 if model == "priced" else None


def draft(unit: BudgetUnit, limit: str, **fields: Any) -> BudgetDraft:
    values: dict[str, Any] = {"subject": "key", "name": KEY, "period": "day", **fields}
    return BudgetDraft(unit=unit, limit=Decimal(limit), **values)


@asynccontextmanager
async def worker(database: Database) -> AsyncIterator[tuple[BudgetStore, BudgetGuard]]:
    store = BudgetStore(database)
    await store.refresh()
    guard = BudgetGuard(database, store, cost_of)
    guard.start()
    yield store, guard
    await guard.aclose()


async def ask(guard: BudgetGuard, **fields: Any) -> None:
    await guard.admit(**{"key_prefix": KEY, "agent": "a", "model": "priced", **fields})


async def test_only_one_of_two_racing_requests_passes_a_budget_of_one(open_database: Open) -> None:
    async with open_database() as database, open_database() as elsewhere, worker(database) as (store, here):
        await store.create(draft(BudgetUnit.REQUESTS, "1"))
        async with worker(elsewhere) as (_, there):
            answers = await asyncio.gather(*(ask(guard) for guard in (here, there) * 4), return_exceptions=True)
        assert [answer for answer in answers if answer is None] == [None]
        errors = [answer for answer in answers if isinstance(answer, BudgetError)]
        assert len(errors) == 7
        assert errors[0].budget["remaining"] == 0
        assert int(errors[0].headers["retry-after"]) <= 86_400
        assert f"1 requests per day for the key '{KEY}' is used up" in errors[0].message
        (state,) = await store.list()
        assert (state.used, state.remaining) == (1, 0)


async def test_rejected_request_counts_in_no_budget(open_database: Open) -> None:
    async with open_database() as database, worker(database) as (store, guard):
        await store.create(draft(BudgetUnit.REQUESTS, "9"))
        await store.create(draft(BudgetUnit.REQUESTS, "1", period="month"))
        await ask(guard)
        with pytest.raises(BudgetError, match="per month"):
            await ask(guard)
        assert [state.used for state in await store.list()] == [1, 1]


async def test_tokens_count_at_once_on_the_worker_and_are_persisted(open_database: Open) -> None:
    async with open_database() as database:
        async with worker(database) as (store, guard):
            await store.create(draft(BudgetUnit.TOKENS, "100"))
            await ask(guard)
            guard.observe(make_event(key_prefix=KEY, prompt_tokens=70, completion_tokens=40))
            with pytest.raises(BudgetError):
                await ask(guard)
            await ask(guard, key_prefix="gl-bbbbbbbb")
        async with worker(database) as (store, guard):
            with pytest.raises(BudgetError):
                await ask(guard)
            assert (await store.list())[0].used == 110


async def test_aborted_request_counts_what_it_used(open_database: Open) -> None:
    async with open_database() as database:
        async with worker(database) as (store, guard):
            await store.create(draft(BudgetUnit.TOKENS, "100", subject="agent", name="a"))
            event = make_event(
                agent="a", status="cancelled", usage_estimated=True, prompt_tokens=8, completion_tokens=4
            )
            guard.observe(event)
        assert (await store.list())[0].used == 12


async def test_cost_budget_uses_the_price_of_the_replying_model(open_database: Open) -> None:
    async with open_database() as database:
        async with worker(database) as (store, guard):
            await store.create(draft(BudgetUnit.COST, "0.5"))
            tokens: dict[str, Any] = {"key_prefix": KEY, "prompt_tokens": 10, "completion_tokens": 5}
            guard.observe(make_event(**tokens, model="alias", resolved_model="priced"))
            guard.observe(make_event(**tokens, model="priced", resolved_model="priced-2026"))
            guard.observe(make_event(**tokens, model="other", resolved_model="other"))
        (state,) = await store.list()
        assert (state.used, state.remaining, state.unpriced) == (Decimal("0.3"), Decimal("0.2"), 1)


async def test_llm_judge_calls_of_two_workers_count_only_in_cost_budgets(open_database: Open) -> None:
    async with open_database() as database, open_database() as elsewhere:
        async with worker(database) as (store, here):
            await store.create(draft(BudgetUnit.COST, "1"))
            await store.create(draft(BudgetUnit.COST, "1", subject="agent", name="a"))
            await store.create(draft(BudgetUnit.TOKENS, "1000"))
            async with worker(elsewhere) as (_, there):
                tokens: dict[str, Any] = {"key_prefix": KEY, "agent": "a", "model": "priced", "resolved_model": None}
                called = {"models": ["judge"], "prompt_tokens": 300, "completion_tokens": 10, "cost_usd": 0.00032}
                here.observe(make_event(**tokens, prompt_tokens=10, completion_tokens=5, extra={"llm": called}))
                # Only the judge was called: the reply was blocked before there was one, or a text was checked.
                there.observe(make_event(**tokens, prompt_tokens=None, completion_tokens=None, extra={"llm": called}))
                unpriced = {**called, "cost_usd": None}
                there.observe(make_event(**tokens, prompt_tokens=10, completion_tokens=0, extra={"llm": unpriced}))
        state = {(state.unit, state.subject): (state.used, state.unpriced) for state in await store.list()}
    cost = Decimal("0.15") + Decimal("0.00032") * 2 + Decimal("0.1")
    assert state == {
        (BudgetUnit.COST, "key"): (cost, 1),
        (BudgetUnit.COST, "agent"): (cost, 1),
        (BudgetUnit.TOKENS, "key"): (25, 0),
    }


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("stopped", ["a request", "the process"])
async def test_cancelled_transaction_loses_no_counts(
    open_database: Open, monkeypatch: pytest.MonkeyPatch, stopped: str, moment: str
) -> None:
    """Whether it is stopped before the transaction begins or after the commit: nothing is lost or counted twice."""
    async with open_database() as database:
        store = BudgetStore(database)
        await store.create(draft(BudgetUnit.TOKENS, "1000"))
        guard, tasks = BudgetGuard(database, store, cost_of), TaskScope()
        transact, held, go_on = database.transact, asyncio.Event(), asyncio.Event()

        async def slow(*args: Any, **options: Any) -> Any:
            done = await transact(*args, **options) if moment == "after" else None
            held.set()
            await go_on.wait()
            return done if moment == "after" else await transact(*args, **options)

        monkeypatch.setattr(database, "transact", slow)
        guard.observe(make_event(key_prefix=KEY, prompt_tokens=70, completion_tokens=40))
        if stopped == "a request":
            tasks.start(ask(guard))
        else:
            guard.start()
        await held.wait()
        await tasks.aclose()
        closing = tasks.start(guard.aclose())
        await asyncio.sleep(0)
        go_on.set()
        await closing
        monkeypatch.undo()
        assert (await store.list())[0].used == 110


async def test_counts_survive_any_failure_of_their_transaction(
    open_database: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_database() as database:
        async with worker(database) as (store, guard):
            await store.create(draft(BudgetUnit.TOKENS, "1000"))

            async def broken(*_: object, **__: object) -> None:
                raise RuntimeError("a bug")

            monkeypatch.setattr(database, "transact", broken)
            guard.observe(make_event(key_prefix=KEY, prompt_tokens=70, completion_tokens=40))
            with pytest.raises(RuntimeError):
                await ask(guard)
            monkeypatch.undo()
        assert (await store.list())[0].used == 110


async def test_uncountable_requests_are_rejected_unless_the_budget_allows_them(open_database: Open) -> None:
    async with open_database() as database, worker(database) as (store, guard):
        cost = await store.create(draft(BudgetUnit.COST, "1"))
        with pytest.raises(UncountedError, match="no known price"):
            await ask(guard, model="other")
        with pytest.raises(UncountedError, match="this path"):
            await ask(guard, counts_tokens=False)
        await store.change(cost.id, {"uncounted": "allow"})
        await ask(guard, model="other")
        await ask(guard, counts_tokens=False)


async def test_requests_without_a_budget_do_not_read_the_database(
    open_database: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_database() as database, worker(database) as (_, guard):
        monkeypatch.setattr(database, "transact", None)
        await ask(guard)


async def test_requests_pass_without_the_database_and_are_counted_later(
    open_database: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_database() as database:
        async with worker(database) as (store, guard):
            await store.create(draft(BudgetUnit.REQUESTS, "1"))

            async def away(*_: object, **__: object) -> None:
                raise DatabaseUnavailableError("away")

            monkeypatch.setattr(database, "transact", away)
            await ask(guard)
            await ask(guard)
            monkeypatch.undo()
        assert (await store.list())[0].used == 2


async def test_budgets_are_changed_and_deleted(open_database: Open) -> None:
    async with open_database() as database, worker(database) as (store, guard):
        made = await store.create(draft(BudgetUnit.REQUESTS, "1"))
        with pytest.raises(ConflictError, match=made.id):
            await store.create(draft(BudgetUnit.REQUESTS, "5"))
        await ask(guard)
        await store.change(made.id, {"limit": Decimal(2)})
        await ask(guard)
        with pytest.raises(BudgetError):
            await ask(guard)
        await store.delete(made.id)
        await ask(guard)
        with pytest.raises(NotFoundError):
            await store.get(made.id)
