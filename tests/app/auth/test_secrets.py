"""Secrets: encrypted in storage, and readable only with the key."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import select, text

from app.auth.audit_log import AuditFilter, entries
from app.auth.secrets import Vault, new_secret_key
from app.db.access_tables import secrets
from app.db.database import Database, DatabaseUnavailableError
from app.errors import ConflictError, NotFoundError
from app.settings import SettingsError

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]


def vault(database: Database, *keys: str) -> Vault:
    return Vault(database, SecretStr(",".join(keys)) if keys else None)


async def test_secret_is_readable_with_the_key_and_encrypted_at_rest(open_database: Open) -> None:
    key = new_secret_key()
    async with open_database() as database:
        one = vault(database, key)
        await one.put("openai", "sk-very-secret-é")
        assert one.key("openai") == "sk-very-secret-é"
        assert one.key("other") is None
        again = vault(database, key)
        await again.refresh()
        assert again.key("openai") == "sk-very-secret-é"
        async with database.read() as connection:
            stored = (await connection.execute(select(secrets.c.value))).scalar_one()
            trail = (await connection.execute(text("SELECT * FROM audit"))).all()
    assert stored.startswith("gAAAA")
    assert "very-secret" not in f"{stored}{trail}"


async def test_secret_can_be_replaced_listed_and_deleted(open_database: Open) -> None:
    async with open_database() as database:
        store = vault(database, new_secret_key())
        first = await store.put("b", "1")
        await store.put("a", "2")
        second = await store.put("b", "3")
        assert second.created_at == first.created_at
        assert second.updated_at >= first.updated_at
        assert store.key("b") == "3"
        assert [info.name for info in await store.list()] == ["a", "b"]
        assert await store.list() == [*(await store.list())[:1], second]
        await store.delete("b")
        assert store.key("b") is None
        with pytest.raises(NotFoundError, match="unknown secret 'b'"):
            await store.delete("b")
        lines = await entries(database, AuditFilter(target="b"), limit=9)
    assert [(line["action"], line["before"], line["after"]) for line in lines] == [
        ("secret.delete", {"value": "***"}, None),
        ("secret.put", {"value": "***"}, {"value": "***"}),
        ("secret.put", None, {"value": "***"}),
    ]


async def test_key_can_be_rotated_without_losing_secrets(open_database: Open) -> None:
    old, new = new_secret_key(), new_secret_key()
    async with open_database() as database:
        await vault(database, old).put("a", "1")
        both = vault(database, new, old)
        await both.refresh()
        assert both.key("a") == "1"
        await both.put("b", "2")
        alone = vault(database, new)
        await alone.refresh()
        assert (alone.key("a"), alone.key("b")) == (None, "2")
        assert await both.rotate() == 2
        await alone.refresh()
        assert (alone.key("a"), alone.key("b")) == ("1", "2")


async def test_undecryptable_secret_aborts_the_rotation(open_database: Open) -> None:
    old, new = new_secret_key(), new_secret_key()
    async with open_database() as database:
        await vault(database, new).put("a", "1")
        await vault(database, old).put("b", "2")
        with pytest.raises(ConflictError, match="decrypt the secret 'b'"):
            await vault(database, new).rotate()
        assert [line["action"] for line in await entries(database, AuditFilter(), limit=9)] == ["secret.put"] * 2


async def test_secrets_require_a_key(open_database: Open) -> None:
    async with open_database() as database:
        store = vault(database)
        await store.refresh()
        assert store.key("a") is None
        calls: list[Callable[[], Any]] = [
            store.list,
            store.rotate,
            lambda: store.put("a", "1"),
            lambda: store.delete("a"),
        ]
        for call in calls:
            with pytest.raises(ConflictError, match="GROUNDLANE_SECRET_KEY is not set"):
                await call()


@pytest.mark.parametrize("keys", ["hunter2", ",", "x" * 44, f"{'A' * 43}=,hunter2"])
async def test_invalid_key_is_rejected_by_the_name_of_its_setting(sqlite_url: str, keys: str) -> None:
    with pytest.raises(SettingsError, match=r"^GROUNDLANE_SECRET_KEY: not a Fernet key") as caught:
        Vault(Database(sqlite_url), SecretStr(keys))
    assert "hunter2" not in str(caught.value)


async def test_change_takes_effect_even_if_reloading_fails(
    open_database: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> None:
        raise DatabaseUnavailableError("away")

    async with open_database() as database:
        store = vault(database, new_secret_key())
        monkeypatch.setattr(store, "refresh", away)
        await store.put("a", "1")
        assert [info.name for info in await store.list()] == ["a"]
