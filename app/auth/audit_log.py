"""The audit log. Each change by an administrator gets one entry, written in the same transaction as the change."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import insert, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from app.db.access_tables import audit
from app.db.database import Database

_actor: ContextVar[str] = ContextVar("actor", default="system")


def act_as(name: str) -> None:
    """Attribute all further changes in this task to the actor ``name``."""
    _actor.set(name)


def actor() -> str:
    """Return the actor to whom changes in this task are attributed."""
    return _actor.get()


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Attribute the changes in the block to the actor ``name``."""
    before = _actor.set(name)
    try:
        yield
    finally:
        _actor.reset(before)


async def note(
    connection: AsyncConnection,
    action: str,
    target: str,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Record that the current actor performed ``action`` (such as ``policy.update``) on ``target`` (an id or name).

    ``before`` and ``after`` describe the target as plain JSON, without secrets. None means that the target didn't
    exist.
    """
    row = {
        "id": f"aud_{uuid4().hex}",
        "ts": datetime.now(UTC),
        "actor": _actor.get(),
        "action": action,
        "target": target,
        "before": before,
        "after": after,
    }
    await connection.execute(insert(audit), row)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Selects entries. A field that is None matches any value. ``since`` is inclusive and ``until`` exclusive. ``kind``
    is the part of the action before the dot, such as ``policy``."""

    since: datetime | None = None
    until: datetime | None = None
    actor: str | None = None
    action: str | None = None
    target: str | None = None
    kind: str | None = None


async def entries(
    database: Database, filter: AuditFilter, *, limit: int, after: tuple[datetime, str] | None = None
) -> Sequence[dict[str, Any]]:
    """Return up to ``limit`` entries, newest first, starting after ``after`` (time and id).

    Raises DatabaseUnavailableError.
    """
    columns = audit.c
    query = select(audit).order_by(columns.ts.desc(), columns.id.desc()).limit(limit)
    for column in (columns.actor, columns.action, columns.target):
        if (value := getattr(filter, column.key)) is not None:
            query = query.where(column == value)
    if filter.kind is not None:
        query = query.where(columns.action.startswith(f"{filter.kind}.", autoescape=True))
    if filter.since is not None:
        query = query.where(columns.ts >= filter.since)
    if filter.until is not None:
        query = query.where(columns.ts < filter.until)
    if after is not None:
        query = query.where(tuple_(columns.ts, columns.id) < tuple_(*after, types=[columns.ts.type, columns.id.type]))
    async with database.read() as connection:
        found = (await connection.execute(query)).all()
    return [{str(name): value for name, value in row._mapping.items()} for row in found]
