"""Saved views of the request list. A view stores filters, sort order and columns under a name, and all operators share
it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.auth.audit_log import note
from app.db.database import Database
from app.db.tables import saved_views
from app.errors import ConflictError, NotFoundError

MOST_VIEWS = 100
Query = Mapping[str, str | Sequence[str]]
"""The parameters of the page's URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedView:
    """A view. ``query`` holds the parameters of the page's URL."""

    id: str
    name: str
    query: Query
    created_at: datetime
    updated_at: datetime


class SavedViews:
    """Stores saved views in a database. Changes are recorded in the audit log. All methods raise
    DatabaseUnavailableError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self) -> Sequence[SavedView]:
        """Return all views, sorted by name."""
        query = select(saved_views).order_by(saved_views.c.name)
        async with self._database.read() as connection:
            return [_view(row) for row in await connection.execute(query)]

    async def get(self, view_id: str) -> SavedView:
        """Return a view. Raises NotFoundError."""
        async with self._database.read() as connection:
            return await _found(connection, view_id)

    async def create(self, name: str, query: Query) -> SavedView:
        """Save a view. Raises ConflictError if the name is taken or there are ``MOST_VIEWS`` views."""
        now = datetime.now(UTC)
        view = SavedView(id=f"view_{uuid4().hex}", name=name, query=dict(query), created_at=now, updated_at=now)
        async with self._database.write() as connection:
            if len((await connection.execute(select(saved_views.c.id))).all()) >= MOST_VIEWS:
                raise ConflictError(f"there are already {MOST_VIEWS} views: delete one first")
            await _unique(connection, insert(saved_views).values(**asdict(view)), name)
            await note(connection, "view.create", view.id, after=_noted(view))
        return view

    async def change(self, view_id: str, changes: Mapping[str, Any]) -> SavedView:
        """Change the ``name`` or ``query`` of a view. Raises NotFoundError, or ConflictError if the name is taken."""
        async with self._database.write() as connection:
            before = await _found(connection, view_id)
            values = {**changes, "updated_at": datetime.now(UTC)}
            changed = update(saved_views).where(saved_views.c.id == view_id).values(**values)
            await _unique(connection, changed, changes.get("name", before.name))
            after = await _found(connection, view_id)
            await note(connection, "view.update", view_id, before=_noted(before), after=_noted(after))
        return after

    async def delete(self, view_id: str) -> None:
        """Delete a view. Raises NotFoundError."""
        async with self._database.write() as connection:
            view = await _found(connection, view_id)
            await connection.execute(delete(saved_views).where(saved_views.c.id == view_id))
            await note(connection, "view.delete", view_id, before=_noted(view))


async def _found(connection: AsyncConnection, view_id: str) -> SavedView:
    row = (await connection.execute(select(saved_views).where(saved_views.c.id == view_id))).first()
    if row is None:
        raise NotFoundError(f"view {view_id!r} does not exist")
    return _view(row)


async def _unique(connection: AsyncConnection, statement: Any, name: str) -> None:
    try:
        await connection.execute(statement)
    except IntegrityError:
        raise ConflictError(f"a view named {name!r} already exists") from None


def _view(row: Any) -> SavedView:
    return SavedView(**{str(name): value for name, value in row._mapping.items()})


def _noted(view: SavedView) -> dict[str, Any]:
    return {"name": view.name, "query": dict(view.query)}
