"""Admin tokens, on SQLite and PostgreSQL."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from app.auth.audit_log import AuditFilter, acting_as, entries
from app.db.access_tables import admin_tokens
from app.db.database import Database
from app.errors import ConflictError, NotFoundError
from app.identity import AdminTokens, Role, TokenDraft

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]
DRAFT = TokenDraft(name="ci", role=Role.EDITOR)


async def test_token_works_on_every_worker_until_it_is_revoked(open_database: Open) -> None:
    async with open_database() as database, open_database() as elsewhere:
        with acting_as("token:bootstrap"):
            made = await AdminTokens(database).create(DRAFT)
        found = await AdminTokens(elsewhere).find(made.token)
        assert found is not None
        assert (found.principal.actor, found.role, found.created_by) == ("token:ci", Role.EDITOR, "token:bootstrap")
        revoked = await AdminTokens(database).revoke(made.prefix)
        assert revoked.revoked_at is not None
        assert await AdminTokens(database).revoke(made.id) == revoked
        assert await AdminTokens(elsewhere).find(made.token) is None
        trail = await entries(database, AuditFilter(target=made.id), limit=9)
        assert [line["action"] for line in trail] == ["token.revoke", "token.create"]


@pytest.mark.parametrize("change", [lambda text: text[:-1], lambda text: text + "x", lambda text: text[4:]])
async def test_other_texts_are_no_tokens(open_database: Open, change: Callable[[str], str]) -> None:
    async with open_database() as database:
        tokens = AdminTokens(database)
        made = await tokens.create(DRAFT)
        assert await tokens.find(change(made.token)) is None


async def test_stored_hash_does_not_authenticate(open_database: Open) -> None:
    async with open_database() as database:
        made = await AdminTokens(database).create(DRAFT)
        async with database.read() as connection:
            row = (await connection.execute(select(admin_tokens))).one()
        secret = made.token.removeprefix(made.prefix)
        assert not any(secret in str(value) for value in row)
        trail = await entries(database, AuditFilter(), limit=9)
        assert secret not in str(trail)


async def test_expired_token_is_rejected(open_database: Open) -> None:
    async with open_database() as database:
        tokens = AdminTokens(database)
        over = datetime.now(UTC) - timedelta(seconds=1)
        made = await tokens.create(TokenDraft(name="ci", role=Role.ADMIN, expires_at=over))
        assert await tokens.find(made.token) is None


async def test_use_is_recorded_once_a_minute(open_database: Open) -> None:
    async with open_database() as database:
        tokens = AdminTokens(database)
        made = await tokens.create(DRAFT)
        await tokens.find(made.token)
        first = (await tokens.get(made.id)).last_used_at
        await tokens.find(made.token)
        assert first is not None
        assert (await tokens.get(made.id)).last_used_at == first


async def test_two_active_tokens_cannot_have_the_same_name(open_database: Open) -> None:
    async with open_database() as database:
        tokens = AdminTokens(database)
        first = await tokens.create(DRAFT)
        for name in ("ci", "bootstrap"):
            with pytest.raises(ConflictError, match="already exists"):
                await tokens.create(TokenDraft(name=name, role=Role.VIEWER))
        await tokens.revoke(first.id)
        second = await tokens.create(DRAFT)
        assert [token.id for token in await tokens.list(revoked=False)] == [second.id]
        assert {token.id for token in await tokens.list()} == {first.id, second.id}


async def test_unknown_token_is_named(open_database: Open) -> None:
    async with open_database() as database:
        with pytest.raises(NotFoundError, match="tok_nobody"):
            await AdminTokens(database).revoke("tok_nobody")
