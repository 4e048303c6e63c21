"""Stores gateway keys. Lookups read from memory; changes are written to the database."""

import asyncio
import hmac
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import structlog
from sqlalchemy import insert, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.auth.audit_log import note
from app.auth.gateway_key import GatewayKey, hash_key, new_key, prefix_of
from app.db.access_tables import api_keys
from app.db.database import Database, DatabaseUnavailableError
from app.db.tables import KEY_REVISION
from app.errors import NotFoundError
from app.worker_sync.change_notifications import announce_change

_log = structlog.stdlib.get_logger(__name__)
_NOBODY = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDraft:
    """A gateway key to create. ``models`` and ``collections`` are shell globs; an empty list allows any."""

    name: str
    models: Sequence[str] = field(default_factory=list)
    collections: Sequence[str] = field(default_factory=list)
    requests_per_minute: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """A stored key in the admin API's format, without its secret."""

    id: str
    name: str
    prefix: str
    models: Sequence[str]
    collections: Sequence[str]
    requests_per_minute: int | None
    created_at: datetime
    revoked_at: datetime | None

    def draft(self) -> KeyDraft:
        return KeyDraft(**{each.name: getattr(self, each.name) for each in fields(KeyDraft)})


_SHOWN = tuple(api_keys.c[each.name] for each in fields(StoredKey))


class KeyStore:
    """The gateway keys in a database. Lookups read from memory, so requests don't need the database.

    ``refresh`` loads the keys. The store's owner calls it at startup and when another process has changed a key. A
    change made through the store takes effect in this process before the method returns. Methods that make changes
    raise DatabaseUnavailableError.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._in_force: Mapping[str, GatewayKey] = {}
        self._loading = asyncio.Lock()

    def find(self, text: str) -> GatewayKey | None:
        """Return the active key whose full text is ``text``, or None. The comparison takes constant time."""
        key = self._in_force.get(prefix_of(text))
        same = hmac.compare_digest(hash_key(text), _NOBODY if key is None else key.digest)
        return key if same else None

    async def refresh(self) -> None:
        """Load the keys from the database. Raises DatabaseUnavailableError."""
        query = select(api_keys).where(api_keys.c.revoked_at.is_(None))
        async with self._loading:
            async with self._database.read() as connection:
                found = (await connection.execute(query)).all()
            self._in_force = {
                row.prefix: GatewayKey(
                    id=row.id,
                    name=row.name,
                    prefix=row.prefix,
                    digest=bytes.fromhex(row.hash),
                    models=tuple(row.models),
                    collections=tuple(row.collections),
                    requests_per_minute=row.requests_per_minute,
                )
                for row in found
            }

    # Lookups

    async def list(
        self,
        *,
        prefix: str | None = None,
        name: str | None = None,
        revoked: bool | None = None,
        after: tuple[str, str] | None = None,
        limit: int = 50,
    ) -> Sequence[StoredKey]:
        """Return up to ``limit`` keys, sorted by name, starting after ``after`` (name and prefix). ``prefix`` selects
        keys whose prefix starts with it."""
        columns = api_keys.c
        query = select(*_SHOWN).order_by(columns.name, columns.prefix).limit(limit)
        if prefix is not None:
            query = query.where(columns.prefix.startswith(prefix, autoescape=True))
        if name is not None:
            query = query.where(columns.name == name)
        if revoked is not None:
            query = query.where(columns.revoked_at.is_not(None) if revoked else columns.revoked_at.is_(None))
        if after is not None:
            query = query.where(tuple_(columns.name, columns.prefix) > tuple_(*after))
        async with self._database.read() as connection:
            return [_stored(row) for row in (await connection.execute(query)).all()]

    async def names(self, prefixes: Collection[str]) -> Mapping[str, str]:
        """Return the names of the keys with these prefixes, by prefix. Unknown prefixes are left out. If several keys
        have the same name, the key's prefix is appended to the name, in parentheses."""
        columns = api_keys.c
        query = select(columns.prefix, columns.name).where(columns.prefix.in_(prefixes)).order_by(columns.created_at)
        async with self._database.read() as connection:
            found = {row.prefix: row.name for row in (await connection.execute(query)).all()}
        uses = Counter(found.values())
        return {prefix: name if uses[name] == 1 else f"{name} ({prefix})" for prefix, name in found.items()}

    async def get(self, key: str) -> StoredKey:
        """Return the key with this id or prefix. Raises NotFoundError."""
        async with self._database.read() as connection:
            return await _get(connection, key)

    # Changes

    async def create(self, draft: KeyDraft) -> tuple[StoredKey, str]:
        """Create a key. Return the stored key and its full text. The text isn't stored, so this is the only time it is
        available."""
        async with self._changing() as connection:
            text = new_key()
            while await _taken(connection, prefix_of(text)):
                text = new_key()
            made = StoredKey(
                id=f"key_{uuid4().hex}",
                prefix=prefix_of(text),
                created_at=datetime.now(UTC),
                revoked_at=None,
                **asdict(draft),
            )
            await connection.execute(insert(api_keys), {**asdict(made), "hash": hash_key(text).hex()})
            await note(connection, "key.create", made.id, after=_audited(made))
        return made, text

    async def change(self, key: str, changes: Mapping[str, Any]) -> StoredKey:
        """Change a key's name or limits. ``changes`` has fields of KeyDraft. The key itself stays the same. Raises
        NotFoundError."""
        return await self._update(key, changes, "key.update")

    async def revoke(self, key: str) -> StoredKey:
        """Revoke the key with this id or prefix. If it is already revoked, do nothing. Raises NotFoundError."""
        return await self._update(key, {"revoked_at": datetime.now(UTC)}, "key.revoke", only_in_force=True)

    async def _update(
        self, key: str, changes: Mapping[str, Any], action: str, *, only_in_force: bool = False
    ) -> StoredKey:
        async with self._changing() as connection:
            before = await _get(connection, key)
            if not changes or (only_in_force and before.revoked_at is not None):
                return before
            await connection.execute(update(api_keys).where(api_keys.c.id == before.id).values(**changes))
            after = await _get(connection, before.id)
            await note(connection, action, before.id, before=_audited(before), after=_audited(after))
        return after

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[AsyncConnection]:
        async with self._database.write() as connection:
            await announce_change(self._database, connection, KEY_REVISION)
            yield connection
        try:
            await self.refresh()
        except DatabaseUnavailableError:
            _log.warning("key_refresh_failed")  # The change is stored; the next refresh loads it.


async def _get(connection: AsyncConnection, key: str) -> StoredKey:
    query = select(*_SHOWN).where(or_(api_keys.c.id == key, api_keys.c.prefix == key))
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFoundError(f"unknown key {key!r}")
    return _stored(row)


async def _taken(connection: AsyncConnection, prefix: str) -> bool:
    return (await connection.execute(select(api_keys.c.id).where(api_keys.c.prefix == prefix))).first() is not None


def _stored(row: Any) -> StoredKey:
    return StoredKey(**row._mapping)


def _audited(key: StoredKey) -> dict[str, Any]:
    revoked_at = None if key.revoked_at is None else key.revoked_at.isoformat()
    return {**asdict(key.draft()), "prefix": key.prefix, "revoked_at": revoked_at}
