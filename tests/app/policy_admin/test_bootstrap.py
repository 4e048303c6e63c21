"""Policies from the configuration file: created once, and replaced if they differ, even if many workers
start at once.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

from app.auth.audit_log import AuditFilter, entries
from app.db.database import Database
from app.errors import ConflictError
from app.policy_admin.bootstrap import bootstrap_policies
from app.policy_admin.policy_document import PolicyDraft, StoredPolicy, parse_document
from app.policy_admin.policy_store import PolicyStore

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]


def drafted(name: str, **rules: Any) -> PolicyDraft:
    return parse_document({"name": name, "category": "retrieval", "rules": rules})


async def stored(store: PolicyStore) -> list[tuple[str, int, int]]:
    return [(policy.name, policy.version, policy.rules["min_chunks"]) for policy in await store.list()]


async def test_policies_are_created_once(open_database: Open) -> None:
    async with open_database() as database:
        store = PolicyStore(database)
        drafts = [drafted("a", min_chunks=2), drafted("b")]
        for _ in range(2):
            await bootstrap_policies(drafts, store)
            assert await stored(store) == [("a", 1, 2), ("b", 1, 1)]
        assert [policy.name for policy in store.engine.policies] == ["a", "b"]


async def test_audit_log_names_the_configuration_as_author(open_database: Open) -> None:
    async with open_database() as database:
        await bootstrap_policies([drafted("a")], PolicyStore(database))
        (line,) = await entries(database, AuditFilter(), limit=5)
        assert (line["actor"], line["action"]) == ("config", "policy.create")


async def test_changed_policy_is_replaced_and_others_are_untouched(open_database: Open) -> None:
    async with open_database() as database:
        store = PolicyStore(database)
        await store.create(drafted("mine"))
        await bootstrap_policies([drafted("a")], store)
        await bootstrap_policies([drafted("a", min_chunks=5)], store)
        assert await stored(store) == [("a", 2, 5), ("mine", 1, 1)]


async def test_concurrent_workers_create_each_policy_once(open_database: Open) -> None:
    drafts = [drafted(name, min_chunks=3) for name in ("a", "b", "c")]
    async with open_database() as one, open_database() as two:
        stores = [PolicyStore(one), PolicyStore(two)]
        async with asyncio.TaskGroup() as group:
            for store in stores:
                group.create_task(bootstrap_policies(drafts, store))
        assert await stored(stores[0]) == [("a", 1, 3), ("b", 1, 3), ("c", 1, 3)]


class Contested(PolicyStore):
    """A store in which another process always changes the policy first."""

    def __init__(self, database: Database, times: int) -> None:
        super().__init__(database)
        self.times = times

    async def create(self, draft: PolicyDraft) -> StoredPolicy:
        if self.times == 0:
            return await super().create(draft)
        self.times -= 1
        raise ConflictError("there is a policy of that name already")


async def test_lost_race_is_retried_a_limited_number_of_times(open_database: Open) -> None:
    async with open_database() as database:
        store = Contested(database, times=2)
        await bootstrap_policies([drafted("a")], store)
        assert await stored(store) == [("a", 1, 1)]
        with pytest.raises(ConflictError):
            await bootstrap_policies([replace(drafted("a"), name="b")], Contested(database, times=100))
