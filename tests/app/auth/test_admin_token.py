"""The admin token: created once, shown once, and stored as a hash."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing

import pytest
from pydantic import SecretStr
from sqlalchemy import delete, select

from app.auth.admin_token import AdminAuth
from app.db.database import Database
from app.db.tables import meta

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[Database]]


async def test_token_is_created_at_the_first_start_and_reused(open_database: Open) -> None:
    async with open_database() as database:
        first = await AdminAuth.open(database, None)
        again = await AdminAuth.open(database, None)
    assert first.created is not None
    assert len(first.created) >= 43
    assert again.created is None
    assert first.accepts(first.created)
    assert again.accepts(first.created)
    assert not again.accepts(first.created + "x")
    assert not again.accepts("")


async def test_database_stores_no_plain_token(open_database: Open) -> None:
    async with open_database() as database:
        created = (await AdminAuth.open(database, None)).created
        async with database.read() as connection:
            stored = (await connection.execute(select(meta.c.value))).scalars().all()
    assert created is not None
    assert not any(created in value for value in stored)


async def test_concurrent_workers_create_one_token(database_url: str) -> None:
    async def start() -> AdminAuth:
        async with aclosing(Database(database_url)) as database:  # waits for the others as a worker does
            return await AdminAuth.open(database, None)

    async with asyncio.TaskGroup() as group:
        starts = [group.create_task(start()) for _ in range(4)]
    workers = [task.result() for task in starts]
    (created,) = [worker.created for worker in workers if worker.created is not None]
    assert all(worker.accepts(created) for worker in workers)
    assert len({worker.session_key for worker in workers}) == 1


async def test_configured_token_takes_precedence_and_is_not_stored(open_database: Open) -> None:
    async with open_database() as database:
        made = (await AdminAuth.open(database, None)).created
        auth = await AdminAuth.open(database, SecretStr("chosen-\N{SNOWMAN}"))
    assert auth.created is None
    assert auth.accepts("chosen-\N{SNOWMAN}")
    assert made is not None
    assert not auth.accepts(made)
    assert not auth.accepts("\ud800")


async def test_session_key_depends_on_token_and_installation(open_database: Open) -> None:
    async with open_database() as database:
        one, again, other = [
            (await AdminAuth.open(database, SecretStr(token))).session_key for token in ("one", "one", "other")
        ]
        made = (await AdminAuth.open(database, None)).session_key
        async with database.write() as connection:
            await connection.execute(delete(meta).where(meta.c.key == "session_key"))
        elsewhere = (await AdminAuth.open(database, SecretStr("one"))).session_key
    assert one == again
    assert len({one, other, made, elsewhere}) == 4


async def test_audit_log_identifies_a_token_across_restarts(open_database: Open) -> None:
    async with open_database() as database:
        given = [(await AdminAuth.open(database, SecretStr(token))).id for token in ("one", "one", "other")]
        made = [await AdminAuth.open(database, None) for _ in range(2)]
    assert given[0] == given[1] != given[2]
    assert made[0].id == made[1].id
    assert made[0].created is not None
    assert all(len(name) == 32 for name in (*given, made[0].id))
    assert made[0].id not in made[0].created
