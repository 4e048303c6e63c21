"""Secrets, such as upstream API keys. They are encrypted in the database and decrypted only in the gateway's memory.

Fernet (AES-128-CBC and HMAC-SHA256) encrypts them with the key in ``GROUNDLANE_SECRET_KEY``, which isn't stored in the
database. The setting may contain several keys: the first one encrypts, and all of them decrypt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from pydantic import SecretStr
from sqlalchemy import delete, insert, select, update

from app.auth.audit_log import note
from app.db.access_tables import secrets
from app.db.database import Database, DatabaseUnavailableError
from app.db.tables import SECRET_REVISION
from app.errors import ConflictError, NotFoundError
from app.settings import SettingsError
from app.worker_sync.change_notifications import announce_change

_log = structlog.stdlib.get_logger(__name__)
_SETTING = "GROUNDLANE_SECRET_KEY"
_MASKED = {"value": "***"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretInfo:
    """A secret without its value."""

    name: str
    created_at: datetime
    updated_at: datetime


def new_secret_key() -> str:
    """Create a new key for ``GROUNDLANE_SECRET_KEY``."""
    return Fernet.generate_key().decode()


class Vault:
    """The secrets in a database.

    ``keys`` is the value of the setting: one or more Fernet keys, separated by commas. Without ``keys``, there are no
    secrets, and changes raise ConflictError. ``refresh`` loads the secrets. The vault's owner calls it at startup and
    when another process has changed a secret. Raises SettingsError for an invalid Fernet key.
    """

    def __init__(self, database: Database, keys: SecretStr | None) -> None:
        self._database = database
        self._cipher = None if keys is None else _cipher(keys.get_secret_value())
        self._values: Mapping[str, str] = {}

    def key(self, name: str) -> str | None:
        """Return the secret with this name, or None. Reads only memory."""
        return self._values.get(name)

    async def refresh(self) -> None:
        """Load the secrets from the database. Secrets that can't be decrypted are logged and skipped.

        Raises DatabaseUnavailableError.
        """
        if self._cipher is None:
            return
        async with self._database.read() as connection:
            found = (await connection.execute(select(secrets.c.name, secrets.c.value))).all()
        values: dict[str, str] = {}
        for name, value in found:
            try:
                values[name] = self._cipher.decrypt(value.encode()).decode()
            except InvalidToken:
                _log.error("secret_unreadable", name=name, detail=f"no key in {_SETTING} can decrypt this secret")
        self._values = values

    async def list(self) -> Sequence[SecretInfo]:
        """List the secrets, sorted by name, without their values. Raises ConflictError or DatabaseUnavailableError."""
        self._open()
        columns = (secrets.c.name, secrets.c.created_at, secrets.c.updated_at)
        async with self._database.read() as connection:
            found = (await connection.execute(select(*columns).order_by(secrets.c.name))).all()
        return [SecretInfo(**row._mapping) for row in found]

    async def put(self, name: str, value: str) -> SecretInfo:
        """Store ``value`` under ``name``, replacing any previous value. Raises ConflictError or
        DatabaseUnavailableError."""
        encrypted, now = self._open().encrypt(value.encode()).decode(), datetime.now(UTC)
        async with self._database.write() as connection:
            await announce_change(self._database, connection, SECRET_REVISION)
            query = select(secrets.c.created_at).where(secrets.c.name == name)
            created_at: datetime | None = (await connection.execute(query)).scalar_one_or_none()
            changed = {"value": encrypted, "updated_at": now}
            if created_at is None:
                await connection.execute(insert(secrets), {"name": name, "created_at": now, **changed})
            else:
                await connection.execute(update(secrets).where(secrets.c.name == name).values(**changed))
            await note(connection, "secret.put", name, before=None if created_at is None else _MASKED, after=_MASKED)
        await self._refresh()
        return SecretInfo(name=name, created_at=created_at or now, updated_at=now)

    async def delete(self, name: str) -> None:
        """Delete the secret. Raises NotFoundError, ConflictError or DatabaseUnavailableError."""
        self._open()
        async with self._database.write() as connection:
            await announce_change(self._database, connection, SECRET_REVISION)
            if (await connection.execute(delete(secrets).where(secrets.c.name == name))).rowcount == 0:
                raise NotFoundError(f"unknown secret {name!r}")
            await note(connection, "secret.delete", name, before=_MASKED)
        await self._refresh()

    async def rotate(self) -> int:
        """Re-encrypt every secret with the first key, so that the other keys can be removed. Return the number of
        secrets.

        Raises ConflictError if secrets are disabled or one can't be decrypted, and DatabaseUnavailableError. On an
        error, no secret is changed.
        """
        cipher = self._open()
        async with self._database.write() as connection:
            await announce_change(self._database, connection, SECRET_REVISION)
            found = (await connection.execute(select(secrets.c.name, secrets.c.value))).all()
            for name, value in found:
                try:
                    anew = cipher.rotate(value.encode()).decode()
                except InvalidToken:
                    raise ConflictError(f"no key in {_SETTING} can decrypt the secret {name!r}") from None
                await connection.execute(update(secrets).where(secrets.c.name == name).values(value=anew))
                await note(connection, "secret.rotate", name)
        return len(found)

    def _open(self) -> MultiFernet:
        if self._cipher is None:
            raise ConflictError(f"secrets cannot be stored: {_SETTING} is not set")
        return self._cipher

    async def _refresh(self) -> None:
        try:
            await self.refresh()
        except DatabaseUnavailableError:
            _log.warning("secret_refresh_failed")  # The change is stored; the next refresh loads it.


def check_secret_keys(keys: SecretStr | None) -> None:
    """Check the Fernet keys. Raises SettingsError if one is invalid."""
    if keys is not None:
        _cipher(keys.get_secret_value())


def _cipher(keys: str) -> MultiFernet:
    try:
        return MultiFernet([Fernet(key.strip()) for key in keys.split(",") if key.strip()])
    except ValueError:
        raise SettingsError(f"{_SETTING}: not a Fernet key; `groundlane secrets new-key` creates one") from None
