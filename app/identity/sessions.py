"""Browser sessions. They are stored in the database, so that they are valid on every worker and after restarts.

The cookie contains a random value, and the database stores only a hash of it. A session belongs to a token or user, and
has the role that its owner has at the time of each request.
"""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import delete, insert, or_, select, update

from app.auth.admin_token import BOOTSTRAP, AdminAuth
from app.auth.audit_log import note
from app.auth.gateway_key import hash_key
from app.db.access_tables import admin_tokens, sessions, users
from app.db.database import Database, DatabaseUnavailableError
from app.errors import NotFoundError
from app.identity.roles import Principal, Role
from app.identity.users import effective_role

_LONGEST_BROWSER = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A signed-in session and its owner. Every request that makes a change must send ``csrf``. The session ends at
    ``expires_at`` at the latest."""

    id: str
    csrf: str
    expires_at: datetime
    principal: Principal

    def may(self, role: str) -> bool:
        """Return whether the session's role includes ``role``."""
        return self.principal.role.includes(Role(role))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """A session in a list. ``actor`` is the owner's name in the audit log. ``address`` and ``browser`` describe the
    client that signed in. ``seen_at`` is accurate to a minute. The session ends at ``expires_at`` at the latest."""

    id: str
    actor: str
    role: Role
    address: str | None
    browser: str | None
    created_at: datetime
    seen_at: datetime
    expires_at: datetime


class Sessions:
    """The sessions of an installation. All methods except ``guest`` raise DatabaseUnavailableError.

    A session ends ``lifetime`` after signing in, or earlier if it is unused for ``idle``. It also ends when its token
    is revoked or expires, or when its user loses every role. A session of the bootstrap token ``admin`` ends when that
    token changes.
    """

    def __init__(
        self,
        database: Database,
        admin: AdminAuth,
        *,
        idle: timedelta = timedelta(hours=2),
        lifetime: timedelta = timedelta(hours=12),
    ) -> None:
        self._database, self._admin, self._idle, self.lifetime = database, admin, idle, lifetime
        self.bootstrap = Principal(id=admin.id, kind="token", name=BOOTSTRAP, role=Role.ADMIN)
        self._seen_every = min(idle / 10, timedelta(minutes=1))

    async def open(self, principal: Principal, *, address: str | None = None, browser: str | None = None) -> str:
        """Start a session and return the cookie's value."""
        now, cookie = datetime.now(UTC), secrets.token_urlsafe(32)
        row = {
            "id": f"ses_{uuid4().hex}",
            "hash": _hash(cookie),
            "principal_id": principal.id,
            "address": address,
            "browser": None if browser is None else browser[:_LONGEST_BROWSER],
            "created_at": now,
            "seen_at": now,
            "expires_at": now + self.lifetime,
        }
        async with self._database.write() as connection:
            over = or_(sessions.c.expires_at <= now, sessions.c.seen_at <= now - self._idle)
            await connection.execute(delete(sessions).where(over))
            await connection.execute(insert(sessions), row)
        return cookie

    async def find(self, cookie: str, *, used: bool = True) -> Operator | None:
        """Return a cookie's session, or None if there is none or it has ended. If ``used`` is true, the call counts as
        use and keeps the session open."""
        now = datetime.now(UTC)
        async with self._database.read() as connection:
            row = (await connection.execute(_QUERY.where(sessions.c.hash == _hash(cookie)))).first()
        principal = None if row is None else self._principal(row, now)
        if row is None or principal is None:
            return None
        if used and now - row.seen_at >= self._seen_every:
            # The session is valid even if the database can currently be read but not written.
            with suppress(DatabaseUnavailableError):
                async with self._database.write() as connection:
                    await connection.execute(update(sessions).where(sessions.c.id == row.id).values(seen_at=now))
        return Operator(id=row.id, csrf=self._sign("csrf", cookie), expires_at=row.expires_at, principal=principal)

    async def list(self, principal: Principal | None = None) -> Sequence[StoredSession]:
        """Return the open sessions of ``principal`` or, if it is None, of everyone. The most recently used session
        comes first."""
        now = datetime.now(UTC)
        query = _QUERY.order_by(sessions.c.seen_at.desc(), sessions.c.id)
        if principal is not None:
            query = query.where(sessions.c.principal_id == principal.id)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        return [_stored(row, whose) for row in rows if (whose := self._principal(row, now)) is not None]

    async def close(self, id: str) -> None:
        """End a session because its owner signs out or signs in again."""
        async with self._database.write() as connection:
            await connection.execute(delete(sessions).where(sessions.c.id == id))

    async def end(self, id: str, *, of: Principal | None = None) -> None:
        """End a session immediately, on every worker. Raises NotFoundError if no session has this id, or if ``of`` is
        given and the session belongs to someone else."""
        ended = delete(sessions).where(sessions.c.id == id)
        if of is not None:
            ended = ended.where(sessions.c.principal_id == of.id)
        async with self._database.write() as connection:
            row = (await connection.execute(_QUERY.where(sessions.c.id == id))).first()
            if not (await connection.execute(ended)).rowcount:
                raise NotFoundError(f"unknown session {id!r}")
            whose = None if row is None else self._principal(row, datetime.now(UTC))
            await note(connection, "session.end", id, before=None if whose is None else {"actor": whose.actor})

    def guest(self, nonce: str) -> str:
        """Return the CSRF token of the sign-in form in a browser whose guest cookie contains ``nonce``."""
        return self._sign("guest", nonce)

    def _principal(self, row: Any, now: datetime) -> Principal | None:
        """Return the owner of the session, or None if the session has ended."""
        if row.expires_at <= now or row.seen_at <= now - self._idle:
            return None
        if row.principal_id == self._admin.id:
            return self.bootstrap
        if row.user_name is not None:
            role = effective_role(row.claimed_role, row.assigned_role)
            return None if role is None else Principal(id=row.principal_id, kind="user", name=row.user_name, role=role)
        if row.token_name is None or row.revoked_at is not None:
            return None
        if row.token_expires_at is not None and row.token_expires_at <= now:
            return None
        return Principal(id=row.principal_id, kind="token", name=row.token_name, role=Role(row.role))

    def _sign(self, use: str, text: str) -> str:
        key = self._admin.session_key
        return hmac.new(key, f"{use}:{text}".encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


_QUERY = select(
    sessions,
    admin_tokens.c.name.label("token_name"),
    admin_tokens.c.role,
    admin_tokens.c.revoked_at,
    admin_tokens.c.expires_at.label("token_expires_at"),
    users.c.name.label("user_name"),
    users.c.claimed_role,
    users.c.assigned_role,
).select_from(
    sessions.outerjoin(admin_tokens, admin_tokens.c.id == sessions.c.principal_id).outerjoin(
        users, users.c.id == sessions.c.principal_id
    )
)


def _stored(row: Any, whose: Principal) -> StoredSession:
    return StoredSession(
        id=row.id,
        actor=whose.actor,
        role=whose.role,
        address=row.address,
        browser=row.browser,
        created_at=row.created_at,
        seen_at=row.seen_at,
        expires_at=row.expires_at,
    )


def _hash(cookie: str) -> str:
    return hash_key(cookie).hex()
