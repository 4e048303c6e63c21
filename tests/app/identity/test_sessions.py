"""Browser sessions, on SQLite and PostgreSQL."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr
from sqlalchemy import func, select, update

from app.auth.admin_token import AdminAuth
from app.auth.audit_log import AuditFilter, entries
from app.db.access_tables import sessions as table
from app.db.database import Database
from app.errors import NotFoundError
from app.identity import AdminTokens, Role, Sessions, TokenDraft

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]
IDLE, LIFETIME = timedelta(hours=1), timedelta(hours=8)


async def opened(database: Database, token: str = "the-admin-token") -> Sessions:
    admin = await AdminAuth.open(database, SecretStr(token))
    return Sessions(database, admin, idle=IDLE, lifetime=LIFETIME)


async def test_session_is_valid_on_every_worker_until_closed(open_database: Open) -> None:
    async with open_database() as database, open_database() as elsewhere:
        here, there = await opened(database), await opened(elsewhere)
        cookie = await here.open(here.bootstrap)
        found = await there.find(cookie)
        assert found is not None
        assert (found.principal.actor, found.principal.role) == ("token:bootstrap", Role.ADMIN)
        assert LIFETIME - timedelta(minutes=1) < found.expires_at - datetime.now(UTC) <= LIFETIME
        assert (await here.find(cookie)) == found
        await there.close(found.id)
        assert await here.find(cookie) is None


async def test_session_of_the_bootstrap_token_ends_with_it_and_others_stay(open_database: Open) -> None:
    async with open_database() as database:
        sessions = await opened(database)
        token = await AdminTokens(database).create(TokenDraft(name="anna", role=Role.VIEWER))
        ours, hers = await sessions.open(sessions.bootstrap), await sessions.open(token.principal)
        after = await opened(database, "another-admin-token")
        assert await after.find(ours) is None
        assert await after.find(hers) is not None
        assert [session.actor for session in await after.list()] == ["token:anna"]


async def test_stored_session_hash_does_not_authenticate(open_database: Open) -> None:
    async with open_database() as database:
        sessions = await opened(database)
        cookie = await sessions.open(sessions.bootstrap)
        async with database.read() as connection:
            row = (await connection.execute(select(table))).one()
        assert not any(cookie in str(value) for value in row)
        assert await sessions.find(row.hash) is None
        assert await sessions.find(row.id) is None


async def test_session_ends_with_its_token(open_database: Open) -> None:
    async with open_database() as database:
        sessions, tokens = await opened(database), AdminTokens(database)
        made = await tokens.create(TokenDraft(name="anna", role=Role.EDITOR))
        cookie = await sessions.open(made.principal)
        found = await sessions.find(cookie)
        assert found is not None
        assert (found.may("editor"), found.may("admin")) == (True, False)
        await tokens.revoke(made.id)
        assert await sessions.find(cookie) is None
        assert await sessions.list() == []


async def _age(database: Database, **ages: timedelta) -> None:
    values = {name: datetime.now(UTC) - age for name, age in ages.items()}
    async with database.write() as connection:
        await connection.execute(update(table).values(**values))


async def test_idle_session_ends_and_use_extends_it(open_database: Open) -> None:
    async with open_database() as database:
        sessions = await opened(database)
        cookie = await sessions.open(sessions.bootstrap)
        await _age(database, seen_at=IDLE * 0.9)
        assert await sessions.find(cookie, used=False) is not None
        assert datetime.now(UTC) - (await sessions.list())[0].seen_at > IDLE * 0.8
        await sessions.find(cookie)
        assert datetime.now(UTC) - (await sessions.list())[0].seen_at < IDLE * 0.1
        await _age(database, seen_at=IDLE * 1.1)
        assert await sessions.find(cookie) is None


async def test_use_does_not_extend_a_session_beyond_its_lifetime(open_database: Open) -> None:
    async with open_database() as database:
        sessions = await opened(database)
        cookie = await sessions.open(sessions.bootstrap)
        await _age(database, expires_at=timedelta(seconds=1))
        assert await sessions.find(cookie) is None


async def test_expired_sessions_are_deleted_when_another_begins(open_database: Open) -> None:
    async with open_database() as database:
        sessions = await opened(database)
        for ages in ({"seen_at": IDLE * 2}, {"expires_at": timedelta(seconds=1)}):
            await sessions.open(sessions.bootstrap)
            await _age(database, **ages)
        await sessions.open(sessions.bootstrap)
        async with database.read() as connection:
            assert (await connection.execute(select(func.count()).select_from(table))).scalar() == 1


async def test_users_can_end_their_own_sessions_and_admins_all(open_database: Open) -> None:
    async with open_database() as database:
        sessions, tokens = await opened(database), AdminTokens(database)
        anna = (await tokens.create(TokenDraft(name="anna", role=Role.VIEWER))).principal
        cookie = await sessions.open(anna, address="192.0.2.7", browser="Firefox")
        await sessions.open(sessions.bootstrap)
        (hers,) = await sessions.list(anna)
        assert (hers.address, hers.browser, hers.role) == ("192.0.2.7", "Firefox", Role.VIEWER)
        assert len(await sessions.list()) == 2
        with pytest.raises(NotFoundError):
            await sessions.end(hers.id, of=sessions.bootstrap)
        assert await sessions.find(cookie) is not None
        await sessions.end(hers.id, of=anna)
        assert await sessions.find(cookie) is None
        with pytest.raises(NotFoundError):
            await sessions.end(hers.id)
        (line,) = await entries(database, AuditFilter(action="session.end"), limit=9)
        assert (line["target"], line["before"]) == (hers.id, {"actor": "token:anna"})
