"""People who signed in with an OpenID Connect provider."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.auth.audit_log import note
from app.db.access_tables import users
from app.db.database import Database
from app.errors import NotFoundError
from app.identity.oidc import SignedInUser
from app.identity.roles import Principal, Role

Assigned = Literal["viewer", "editor", "admin", "none"]


def effective_role(claimed: str | None, assigned: str | None) -> Role | None:
    """Return the role of a user: the assigned role or, without one, the role from the provider's claims."""
    role = claimed if assigned is None else assigned
    return None if role in (None, "none") else Role(role)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUser:
    """A user. ``claimed_role`` comes from the provider's claims at the last sign-in. If ``assigned_role`` is set, it
    takes precedence; ``none`` denies access."""

    id: str
    issuer: str
    subject: str
    name: str
    claimed_role: Role | None
    assigned_role: Assigned | None
    created_at: datetime
    signed_in_at: datetime

    @property
    def principal(self) -> Principal | None:
        """The user as a caller of the admin API, or None if the user has no role."""
        role = effective_role(self.claimed_role, self.assigned_role)
        return None if role is None else Principal(id=self.id, kind="user", name=self.name, role=role)


_COLUMNS = tuple(users.c[each.name] for each in fields(StoredUser))


class Users:
    """Stores users in a database. All methods raise DatabaseUnavailableError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def signed_in(self, who: SignedInUser) -> StoredUser:
        """Record a sign-in, with the user's name and claimed role."""
        values = {"name": who.name, "claimed_role": who.role, "signed_in_at": datetime.now(UTC)}
        same = (users.c.issuer == who.issuer) & (users.c.subject == who.subject)
        async with self._database.write() as connection:
            before = (await connection.execute(select(*_COLUMNS).where(same))).first()
            if before is None:
                row = {
                    **values,
                    "id": f"usr_{uuid4().hex}",
                    "issuer": who.issuer,
                    "subject": who.subject,
                    "assigned_role": None,
                    "created_at": values["signed_in_at"],
                }
                await connection.execute(insert(users), row)
            else:
                await connection.execute(update(users).where(same).values(**values))
            after = _stored((await connection.execute(select(*_COLUMNS).where(same))).one())
            if before is None or _audited(_stored(before)) != _audited(after):
                action = "user.create" if before is None else "user.update"
                earlier = None if before is None else _audited(_stored(before))
                await note(connection, action, after.id, before=earlier, after=_audited(after))
        return after

    async def list(self) -> Sequence[StoredUser]:
        """Return all users, sorted by name."""
        async with self._database.read() as connection:
            rows = (await connection.execute(select(*_COLUMNS).order_by(users.c.name, users.c.id))).all()
        return [_stored(row) for row in rows]

    async def assign(self, id: str, role: Assigned | None) -> StoredUser:
        """Assign a role to a user. It takes precedence over the role from the user's claims. If ``role`` is None, the
        claimed role applies again. The change takes effect at the next request. Raises NotFoundError."""
        async with self._database.write() as connection:
            before = await _get(connection, id)
            await connection.execute(update(users).where(users.c.id == id).values(assigned_role=role))
            after = await _get(connection, id)
            await note(connection, "user.update", id, before=_audited(before), after=_audited(after))
        return after


async def _get(connection: AsyncConnection, id: str) -> StoredUser:
    row = (await connection.execute(select(*_COLUMNS).where(users.c.id == id))).one_or_none()
    if row is None:
        raise NotFoundError(f"unknown user {id!r}")
    return _stored(row)


def _stored(row: Any) -> StoredUser:
    values = dict(row._mapping)
    claimed = values["claimed_role"]
    return StoredUser(**{**values, "claimed_role": None if claimed is None else Role(claimed)})


def _audited(user: StoredUser) -> dict[str, Any]:
    return {"name": user.name, "claimed_role": user.claimed_role, "assigned_role": user.assigned_role}
