"""The bootstrap admin token, which gives access to the admin API and the dashboard before other tokens exist, and later
in emergencies: it also works while the database is unavailable."""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Mapping

from pydantic import SecretStr
from sqlalchemy import select

from app.db.database import Database
from app.db.tables import meta

BOOTSTRAP = "bootstrap"
"""The token's name in the audit log, reserved for this token."""

_KEY = "admin_token"
_SESSIONS = "session_key"


class AdminAuth:
    """Checks the admin token. ``created`` is the token if ``open`` has just created it, so that it can be shown once.
    Otherwise, it is None.

    ``id`` identifies the token in sessions. It is the same on every worker and after restarts, and reveals no part of
    the token. ``session_key`` signs forms. It is the same on every worker and differs between installations and tokens.
    """

    def __init__(
        self, salt: bytes, digest: bytes, *, id: bytes, session_key: bytes, created: str | None = None
    ) -> None:
        self._salt, self._digest = salt, digest
        self.id = id[:16].hex()
        self.session_key = session_key
        self.created = created

    @classmethod
    async def open(cls, database: Database, token: SecretStr | None) -> "AdminAuth":
        """Use ``token`` from the settings. If it is None, use the token whose hash is in the database. The gateway
        creates that token when it starts for the first time. Raises DatabaseUnavailableError."""
        salt, new = secrets.token_bytes(16), secrets.token_urlsafe(32)
        ours = {_SESSIONS: secrets.token_hex(32)}
        if token is None:
            ours[_KEY] = f"{salt.hex()}:{_hash(salt, new).hex()}"
        kept = await _kept(database, ours)
        secret = bytes.fromhex(kept[_SESSIONS])
        if token is not None:
            text = token.get_secret_value()
            id = await asyncio.to_thread(_slow_hash, text)
            return cls(salt, _hash(salt, text), id=id, session_key=_session_key(secret, id))
        kept_salt, kept_digest = (bytes.fromhex(part) for part in kept[_KEY].split(":"))
        return cls(
            kept_salt,
            kept_digest,
            id=kept_digest,
            session_key=_session_key(secret, kept_digest),
            created=new if kept[_KEY] == ours[_KEY] else None,
        )

    def accepts(self, token: str) -> bool:
        """Whether ``token`` is the admin token, compared in constant time."""
        return hmac.compare_digest(_hash(self._salt, token), self._digest)


async def _kept(database: Database, ours: Mapping[str, str]) -> dict[str, str]:
    """Return the stored values for the keys in ``ours``. If there are none yet, store ``ours`` first. If workers start
    at the same time, one of them stores its values and the others read those."""
    async with database.write() as connection:
        await connection.execute(database.insert_ignore(meta), [{"key": key, "value": ours[key]} for key in ours])
        found = await connection.execute(select(meta.c.key, meta.c.value).where(meta.c.key.in_(list(ours))))
        return {row.key: row.value for row in found}


def _session_key(secret: bytes, id: bytes) -> bytes:
    return hmac.digest(secret, b"dashboard session:" + id, "sha256")


def _hash(salt: bytes, token: str) -> bytes:
    # Slow hashes protect weak passwords. A generated token has 256 random bits, so it can't be guessed even if the hash
    # is fast. A slow hash on every request would make denial of service easy.
    return hashlib.sha256(salt + token.encode("utf-8", "surrogatepass")).digest()


def _slow_hash(token: str) -> bytes:
    """Hash the token to derive its id. The hash is slow for three reasons: the operator may have chosen a weak token,
    the id is stored with sessions, and the salt can't be random."""
    return hashlib.scrypt(token.encode("utf-8", "surrogatepass"), salt=b"groundlane admin token", n=2**13, r=8, p=1)
