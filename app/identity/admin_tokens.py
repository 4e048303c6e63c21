"""Admin tokens with a name, a role and an expiry, stored as hashes in the database."""

import hmac
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import insert, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.auth.admin_token import BOOTSTRAP
from app.auth.audit_log import actor, note
from app.auth.gateway_key import hash_key
from app.db.access_tables import admin_tokens
from app.db.database import Database, DatabaseUnavailableError
from app.errors import ConflictError, NotFoundError
from app.identity.roles import Principal, Role

_PREFIX = re.compile(r"gla-[a-z2-7]{8}(?=-)")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_NOBODY = bytes(32)
_USE_NOTED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDraft:
    """A token to create. If ``expires_at`` is None, the token doesn't expire."""

    name: str
    role: Role
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """A token as the admin API returns it, without its secret. ``last_used_at`` is accurate to a minute."""

    id: str
    name: str
    prefix: str
    role: Role
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None

    def active(self, now: datetime) -> bool:
        """Return whether the token is active at the time ``now``, that is, neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)

    @property
    def principal(self) -> Principal:
        return Principal(id=self.id, kind="token", name=self.name, role=self.role)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedToken(StoredToken):
    """A new token. ``token`` is returned only in this response."""

    token: str


_COLUMNS = tuple(admin_tokens.c[each.name] for each in fields(StoredToken))


class AdminTokens:
    """Stores admin tokens in a database. All methods raise DatabaseUnavailableError.

    Every use reads the database, so every worker rejects a revoked token immediately.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, text: str) -> StoredToken | None:
        """Return the active token whose secret is ``text``, and record its use. Return None if there is none. The
        comparison takes constant time."""
        prefix = _PREFIX.match(text)
        if prefix is None:
            return None
        now = datetime.now(UTC)
        query = select(*_COLUMNS, admin_tokens.c.hash).where(admin_tokens.c.prefix == prefix.group())
        async with self._database.read() as connection:
            row = (await connection.execute(query)).first()
        digest = _NOBODY if row is None else bytes.fromhex(row.hash)
        if not hmac.compare_digest(hash_key(text), digest) or row is None:
            return None
        token = _stored(row)
        if not token.active(now):
            return None
        await self._note_use(token, now)
        return token

    async def list(
        self, *, revoked: bool | None = None, after: tuple[str, str] | None = None, limit: int = 50
    ) -> Sequence[StoredToken]:
        """Return up to ``limit`` tokens, sorted by name, starting after the key ``after`` (name and prefix)."""
        columns = admin_tokens.c
        query = select(*_COLUMNS).order_by(columns.name, columns.prefix).limit(limit)
        if revoked is not None:
            query = query.where(columns.revoked_at.is_not(None) if revoked else columns.revoked_at.is_(None))
        if after is not None:
            query = query.where(tuple_(columns.name, columns.prefix) > tuple_(*after))
        async with self._database.read() as connection:
            return [_stored(row) for row in (await connection.execute(query)).all()]

    async def get(self, name: str) -> StoredToken:
        """Return the token whose id or prefix is ``name``. Raises NotFoundError."""
        async with self._database.read() as connection:
            return await _get(connection, name)

    async def create(self, draft: TokenDraft) -> CreatedToken:
        """Create a token. Raises ConflictError if an active token has the same name, because the audit log identifies
        tokens by name."""
        async with self._database.write() as connection:
            if draft.name == BOOTSTRAP or await _name_taken(connection, draft.name):
                raise ConflictError(f"A token named {draft.name!r} already exists. Revoke it or choose another name.")
            prefix = f"gla-{''.join(secrets.choice(_ALPHABET) for _ in range(8))}"
            made = CreatedToken(
                id=f"tok_{uuid4().hex}",
                prefix=prefix,
                token=f"{prefix}-{secrets.token_urlsafe(32)}",
                created_at=datetime.now(UTC),
                created_by=actor(),
                last_used_at=None,
                revoked_at=None,
                **asdict(draft),
            )
            row = {**asdict(made), "hash": hash_key(made.token).hex()}
            del row["token"]
            await connection.execute(insert(admin_tokens), row)
            await note(connection, "token.create", made.id, after=_audited(made))
        return made

    async def revoke(self, name: str) -> StoredToken:
        """Revoke the token whose id or prefix is ``name``, unless it is already revoked. Its sessions end. Raises
        NotFoundError."""
        async with self._database.write() as connection:
            before = await _get(connection, name)
            if before.revoked_at is not None:
                return before
            change = update(admin_tokens).where(admin_tokens.c.id == before.id)
            await connection.execute(change.values(revoked_at=datetime.now(UTC)))
            after = await _get(connection, before.id)
            await note(connection, "token.revoke", before.id, before=_audited(before), after=_audited(after))
        return after

    async def _note_use(self, token: StoredToken, now: datetime) -> None:
        if token.last_used_at is not None and now - token.last_used_at < _USE_NOTED_EVERY:
            return
        # The token is valid even if the database can currently be read but not written.
        with suppress(DatabaseUnavailableError):
            async with self._database.write() as connection:
                change = update(admin_tokens).where(admin_tokens.c.id == token.id)
                await connection.execute(change.values(last_used_at=now))


async def _get(connection: AsyncConnection, name: str) -> StoredToken:
    query = select(*_COLUMNS).where(or_(admin_tokens.c.id == name, admin_tokens.c.prefix == name))
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFoundError(f"unknown token {name!r}")
    return _stored(row)


async def _name_taken(connection: AsyncConnection, name: str) -> bool:
    columns = admin_tokens.c
    found = await connection.execute(
        select(columns.expires_at).where(columns.name == name, columns.revoked_at.is_(None))
    )
    return any(row.expires_at is None or row.expires_at > datetime.now(UTC) for row in found)


def _stored(row: Any) -> StoredToken:
    values = {each.name: getattr(row, each.name) for each in fields(StoredToken)}
    return StoredToken(**{**values, "role": Role(values["role"])})


def _audited(token: StoredToken) -> dict[str, Any]:
    def iso(time: datetime | None) -> str | None:
        return None if time is None else time.isoformat()

    return {
        "name": token.name,
        "prefix": token.prefix,
        "role": token.role,
        "expires_at": iso(token.expires_at),
        "revoked_at": iso(token.revoked_at),
    }
