"""Keys: looked up in memory, stored as hashes, and changed with an entry in the audit log."""

import hashlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select, text

from app.auth import KeyDraft, KeyStore
from app.auth.audit_log import AuditFilter, acting_as, entries
from app.db.access_tables import api_keys
from app.db.database import Database, DatabaseUnavailableError
from app.db.tables import KEY_REVISION
from app.errors import NotFoundError
from app.worker_sync.change_notifications import ChangeWatcher

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]
Until = Callable[..., Any]


async def test_key_is_found_only_by_its_exact_text(open_database: Open) -> None:
    async with open_database() as database:
        store = KeyStore(database)
        made, key = await store.create(KeyDraft(name="bot", models=["gpt-*"], requests_per_minute=5))
        found = store.find(key)
        assert found is not None
        assert (found.id, found.names, found.models) == (made.id, ("bot", made.prefix), ("gpt-*",))
        for wrong in (key[:-1], key + "x", key[:-1] + "!", made.prefix, "", "gl-abcd2345-" + "x" * 43, "é\ud800"):
            assert store.find(wrong) is None


async def test_only_a_hash_is_stored(open_database: Open) -> None:
    async with open_database() as database:
        _, key = await KeyStore(database).create(KeyDraft(name="bot"))
        async with database.read() as connection:
            row = (await connection.execute(select(api_keys))).one()
            trail = (await connection.execute(text("SELECT * FROM audit"))).all()
    secret = key.rpartition(row.prefix)[2]
    assert row.hash == hashlib.sha256(key.encode()).hexdigest()
    assert secret not in str(row)
    assert secret not in str(trail)


async def test_revoked_key_is_rejected_and_still_listed(open_database: Open) -> None:
    async with open_database() as database:
        store = KeyStore(database)
        made, key = await store.create(KeyDraft(name="bot"))
        revoked = await store.revoke(made.prefix)
        assert revoked.revoked_at is not None
        assert store.find(key) is None
        assert (await store.revoke(made.id)).revoked_at == revoked.revoked_at
        assert await store.get(made.id) == revoked
        assert await store.list(revoked=False) == []
        assert await store.list(revoked=True) == [revoked]
        with pytest.raises(NotFoundError, match="unknown key 'gl-nobody22'"):
            await store.revoke("gl-nobody22")


async def test_limits_can_be_changed(open_database: Open) -> None:
    async with open_database() as database:
        store = KeyStore(database)
        made, key = await store.create(KeyDraft(name="bot", models=["a"]))
        changed = await store.change(made.id, {"models": ["b"], "requests_per_minute": 3})
        assert (changed.models, changed.requests_per_minute, changed.name) == (["b"], 3, "bot")
        found = store.find(key)
        assert found is not None
        assert found.models == ("b",)


async def test_keys_are_listed_by_name_in_pages(open_database: Open) -> None:
    async with open_database() as database:
        store = KeyStore(database)
        made = [(await store.create(KeyDraft(name=name)))[0] for name in ("b", "a", "a", "c%")]
        ordered = sorted(made, key=lambda key: (key.name, key.prefix))
        assert await store.list() == ordered
        assert await store.list(limit=2, after=(ordered[1].name, ordered[1].prefix)) == ordered[2:]
        assert await store.list(name="a") == ordered[:2]
        assert await store.list(prefix=made[0].prefix[:-1]) == [made[0]]
        assert await store.list(prefix="gl-%") == []


async def test_other_workers_see_changes_and_lookups_need_no_database(open_database: Open, until: Until) -> None:
    async with open_database() as one, open_database() as other:
        store, there = KeyStore(one), KeyStore(other)
        watch = ChangeWatcher(other, {KEY_REVISION: there.refresh}, poll_s=0.01)
        await watch.start()
        made, key = await store.create(KeyDraft(name="bot"))
        await until(lambda: there.find(key) is not None, 1.0)
        await store.revoke(made.id)
        await until(lambda: there.find(key) is None, 1.0)
        await watch.aclose()


async def test_keys_are_loaded_at_startup(open_database: Open) -> None:
    async with open_database() as database:
        _, key = await KeyStore(database).create(KeyDraft(name="bot"))
        again = KeyStore(database)
        assert again.find(key) is None
        await again.refresh()
        assert again.find(key) is not None


async def test_known_keys_work_while_the_database_is_unavailable(open_database: Open) -> None:
    async with open_database() as database:
        store = KeyStore(database)
        _, key = await store.create(KeyDraft(name="bot"))
        away = KeyStore(Database("sqlite+aiosqlite:////no/such/folder/groundlane.db"))
        away._in_force = store._in_force
        with pytest.raises(DatabaseUnavailableError):
            await away.refresh()
        assert away.find(key) is not None


async def test_each_change_is_audited(open_database: Open) -> None:
    start = datetime.now(UTC)
    async with open_database() as database:
        store = KeyStore(database)
        with acting_as("token:1234"):
            made, _ = await store.create(KeyDraft(name="bot"))
            await store.change(made.id, {"name": "robot"})
        await store.revoke(made.id)
        await store.revoke(made.id)
        lines = await entries(database, AuditFilter(target=made.id), limit=10)
        revoke, update, create = lines
        assert [line["action"] for line in lines] == ["key.revoke", "key.update", "key.create"]
        assert [line["actor"] for line in lines] == ["system", "token:1234", "token:1234"]
        assert create["before"] is None
        assert (update["before"]["name"], update["after"]["name"]) == ("bot", "robot")
        assert (revoke["before"]["revoked_at"], bool(revoke["after"]["revoked_at"])) == (None, True)
        assert all(line["ts"] >= start for line in lines)
        assert await entries(database, AuditFilter(until=start), limit=10) == []
        assert len(await entries(database, AuditFilter(actor="token:1234", since=start), limit=10)) == 2
        rest = await entries(database, AuditFilter(), limit=10, after=(revoke["ts"], revoke["id"]))
        assert rest == [update, create]


async def test_failed_change_is_not_audited(open_database: Open) -> None:
    async with open_database() as database:
        with pytest.raises(NotFoundError):
            await KeyStore(database).change("key_nobody", {"name": "x"})
        assert await entries(database, AuditFilter(), limit=10) == []


async def test_prefixes_are_unique(open_database: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = [f"gl-{name}-{'x' * 43}" for name in ("aaaaaaaa", "aaaaaaaa", "bbbbbbbb")]
    monkeypatch.setattr("app.auth.key_store.new_key", lambda: ready.pop(0))
    async with open_database() as database:
        store = KeyStore(database)
        assert [(await store.create(KeyDraft(name="bot")))[0].prefix for _ in range(2)] == [
            "gl-aaaaaaaa",
            "gl-bbbbbbbb",
        ]


async def test_change_takes_effect_even_if_reloading_fails(
    open_database: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> None:
        raise DatabaseUnavailableError("away")

    async with open_database() as database:
        store = KeyStore(database)
        monkeypatch.setattr(store, "refresh", away)
        made, _ = await store.create(KeyDraft(name="bot"))
        assert await store.get(made.id) == made
