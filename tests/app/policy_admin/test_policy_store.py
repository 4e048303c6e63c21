"""Policies: changed in one worker, in force in all, and never lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text, update

from app.db.database import Database, DatabaseUnavailableError
from app.db.tables import POLICY_REVISION, policies
from app.errors import ConflictError, InvalidAdminRequestError, NotFoundError, PreconditionError
from app.policy_admin.policy_document import PolicyDraft, parse_document
from app.policy_admin.policy_store import PolicyStore
from app.worker_sync.change_notifications import ChangeWatcher

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]
Until = Callable[..., Any]


def drafted(name: str = "gate", **changes: Any) -> PolicyDraft:
    return parse_document({"name": name, "category": "retrieval", **changes})


@asynccontextmanager
async def worker(open_database: Open, poll_s: float = 60) -> AsyncIterator[PolicyStore]:
    async with open_database() as database:
        store = PolicyStore(database)
        watch = ChangeWatcher(database, {POLICY_REVISION: store.refresh}, poll_s=poll_s)
        await watch.start()
        try:
            yield store
        finally:
            await watch.aclose()


def in_force(store: PolicyStore) -> list[tuple[str, int]]:
    return [(policy.name, policy.version) for policy in store.engine.policies]


async def test_change_takes_effect_locally_on_return(open_database: Open) -> None:
    async with worker(open_database) as store:
        assert store.ready
        policy = await store.create(drafted(scope={"agents": ["research-*"]}, rules={"min_chunks": 2}))
        assert in_force(store) == [("gate", 1)]
        assert store.engine.policies[0].rules.model_dump()["min_chunks"] == 2
        assert store.engine.in_scope(agent="research-7", model="m")
        assert not store.engine.in_scope(agent="sales", model="m")
        await store.patch(policy.id, {"enabled": False})
        assert in_force(store) == []
        await store.patch(policy.id, {"enabled": True})
        assert store.loaded_versions == {policy.id: 3}
        await store.delete(policy.id)
        assert in_force(store) == []


async def test_change_reaches_another_worker_within_a_second(open_database: Open, until: Until) -> None:
    async with worker(open_database, poll_s=0.5) as one, worker(open_database, poll_s=0.5) as other:
        policy = await one.create(drafted())
        await until(lambda: in_force(other) == [("gate", 1)], 1.0)
        await other.patch(policy.id, {"priority": 3})
        await until(lambda: in_force(one) == [("gate", 2)], 1.0)
        await one.delete(policy.id)
        await until(lambda: in_force(other) == [], 1.0)


async def test_snapshot_is_not_affected_by_later_changes(open_database: Open) -> None:
    async with worker(open_database) as store:
        await store.create(drafted())
        before = store.engine
        await store.create(drafted("other"))
        assert [policy.name for policy in before.policies] == ["gate"]


async def test_policies_survive_a_restart(open_database: Open) -> None:
    async with worker(open_database) as store:
        made = await store.create(drafted(priority=5, mode="enforce"))
    async with worker(open_database) as store:
        assert in_force(store) == [("gate", 1)]
        assert await store.get(made.id) == made


async def test_stale_version_changes_nothing(open_database: Open) -> None:
    async with worker(open_database) as store:
        policy = await store.create(drafted())
        await store.patch(policy.id, {"priority": 1}, expected=1)
        with pytest.raises(PreconditionError, match="is at version 2, not 1"):
            await store.replace(policy.id, drafted(priority=9), expected=1)
        with pytest.raises(PreconditionError):
            await store.delete(policy.id, expected=1)
        assert (await store.get(policy.id)).priority == 1


async def test_only_one_of_two_concurrent_changes_wins(open_database: Open) -> None:
    async with worker(open_database) as one, worker(open_database) as other:
        policy = await one.create(drafted())
        outcomes = await asyncio.gather(
            *(store.patch(policy.id, {"priority": 1}, expected=1) for store in (one, other, one, other)),
            return_exceptions=True,
        )
        failed = [repr(outcome) for outcome in outcomes if isinstance(outcome, BaseException)]
        assert [type(outcome) for outcome in outcomes].count(PreconditionError) == 3, failed
        assert (await one.get(policy.id)).version == 2


async def test_concurrent_patches_without_a_version_all_apply(open_database: Open) -> None:
    async with worker(open_database) as one, worker(open_database) as other:
        policy = await one.create(drafted())
        rules = ("min_chunks", "max_chunks", "max_source_age_days", "min_relevance_score")
        async with asyncio.TaskGroup() as group:
            for store, rule in zip((one, other, one, other), rules, strict=True):
                group.create_task(store.patch(policy.id, {"rules": {rule: 1}}))
        found = await one.get(policy.id)
        assert found.version == 5
        assert [found.rules[rule] for rule in rules] == [1, 1, 1, 1]


async def test_names_are_unique(open_database: Open) -> None:
    async with worker(open_database) as store:
        first = await store.create(drafted("one"))
        second = await store.create(drafted("two"))
        with pytest.raises(ConflictError, match="'one'"):
            await store.create(drafted("one"))
        with pytest.raises(ConflictError):
            await store.patch(second.id, {"name": "one"})
        await store.replace(first.id, drafted("one", priority=1))
        await store.delete(first.id)
        await store.patch(second.id, {"name": "one"})
        assert in_force(store) == [("one", 2)]


async def test_versions_are_kept_and_can_be_restored(open_database: Open) -> None:
    async with worker(open_database) as store:
        policy = await store.create(drafted(rules={"min_chunks": 2}))
        await store.patch(policy.id, {"rules": {"min_chunks": 3}})
        back = await store.rollback(policy.id, 1, expected=2)
        assert (back.version, back.rules["min_chunks"], back.created_at) == (3, 2, policy.created_at)
        await store.delete(policy.id)
        kept = await store.versions(policy.id)
        assert [(version.version, version.change, version.rules["min_chunks"]) for version in kept] == [
            (4, "delete", 2),
            (3, "rollback", 2),
            (2, "update", 3),
            (1, "create", 2),
        ]
        assert [version.version for version in await store.versions(policy.id, before=3, limit=1)] == [2]
        with pytest.raises(NotFoundError):
            await store.rollback(policy.id, 1)


async def test_unknown_policy_is_not_found(open_database: Open) -> None:
    async with worker(open_database) as store:
        policy = await store.create(drafted())
        for call in (
            store.get("pol_x"),
            store.replace("pol_x", drafted()),
            store.patch("pol_x", {}),
            store.delete("pol_x"),
            store.versions("pol_x"),
            store.rollback("pol_x", 1),
            store.rollback(policy.id, 2),
        ):
            with pytest.raises(NotFoundError):
                await call


async def test_patch_that_makes_a_policy_invalid_changes_nothing(open_database: Open) -> None:
    async with worker(open_database) as store:
        policy = await store.create(drafted())
        with pytest.raises(InvalidAdminRequestError, match=r"rules\.min_chunks"):
            await store.patch(policy.id, {"rules": {"min_chunks": -1}})
        assert await store.get(policy.id) == policy
        assert len(await store.versions(policy.id)) == 1


async def test_lists_are_sorted_by_name_and_filtered(open_database: Open) -> None:
    async with worker(open_database) as store:
        for name in ("c", "a", "b"):
            await store.create(drafted(name, enabled=name != "b"))
        await store.create(parse_document({"name": "d", "category": "grounding"}))

        async def names(**filters: Any) -> list[str]:
            return [policy.name for policy in await store.list(**filters)]

        assert await names() == ["a", "b", "c", "d"]
        assert await names(after="a", limit=2) == ["b", "c"]
        assert await names(category="retrieval", enabled=True) == ["a", "c"]
        assert await names(name="b") == ["b"]


async def test_last_known_policies_apply_while_the_database_is_unavailable(open_database: Open, until: Until) -> None:
    async with worker(open_database) as one, open_database() as database:
        await one.create(drafted())
        other = PolicyStore(database)
        watch = ChangeWatcher(database, {POLICY_REVISION: other.refresh}, poll_s=0.01)
        await watch.start()
        async with database.write() as connection:
            await connection.execute(text("ALTER TABLE meta RENAME TO elsewhere"))
        await asyncio.sleep(0.05)
        assert in_force(other) == [("gate", 1)]
        async with database.write() as connection:
            await connection.execute(text("ALTER TABLE elsewhere RENAME TO meta"))
        await one.create(drafted("new"))
        await until(lambda: in_force(other) == [("gate", 1), ("new", 1)])
        await watch.aclose()


async def test_unreadable_policy_stays_in_force_as_it_was(open_database: Open, until: Until) -> None:
    async with worker(open_database) as store, open_database() as database:
        policy = await store.create(drafted())
        async with database.write() as connection:
            await connection.execute(update(policies).values(rules={"rule_of_the_future": 1}, version=2))
        await store.refresh()
        assert in_force(store) == [("gate", 1)]
        assert "rule_of_the_future" in store.unreadable[policy.id]
        async with worker(open_database) as fresh:
            assert in_force(fresh) == []
            assert list(fresh.unreadable) == [policy.id]
            await fresh.replace(policy.id, drafted())
            assert in_force(fresh) == [("gate", 3)]
            assert fresh.unreadable == {}


async def test_store_does_not_start_without_a_database(tmp_path_factory: pytest.TempPathFactory) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path_factory.mktemp('a')}/missing/x.db")
    store = PolicyStore(database)
    with pytest.raises(DatabaseUnavailableError):
        await store.refresh()
    assert not store.ready
    await database.aclose()
