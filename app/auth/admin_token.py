"""Who may use the admin API: whoever has the admin token."""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Mapping

from pydantic import SecretStr
from sqlalchemy import select

from app.db.database import Database
from app.db.tables import meta

_KEY = "admin_token"
_SESSIONS = "session_key"


class AdminAuth:
    """Checks the admin token. ``created`` is the token if ``open`` has just made it: to be shown once.

    ``id`` is what the audit trail knows it by: the same on every worker and at every start, and no part of it.
    ``session_key`` signs what a signed-in browser shows: the same on every worker, another one for another installation
    or another token, so that a new token signs everybody out.
    """

    def __init__(
        self, salt: bytes, digest: bytes, *, id: bytes, session_key: bytes, created: str | None = None
    ) -> None:
        self._salt, self._digest = salt, digest
        self.id = id[:4].hex()
        self.session_key = session_key
        self.created = created

    @classmethod
    async def open(cls, database: Database, token: SecretStr | None) -> "AdminAuth":
        """``token`` is the one from the settings. Without it the one made at the first start stands, whose hash is in
        the database; if there is none yet, it is made now. Raises DatabaseUnavailableError."""
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
        """Whether ``token`` is the admin token; takes the same time whatever is wrong with it."""
        return hmac.compare_digest(_hash(self._salt, token), self._digest)


async def _kept(database: Database, ours: Mapping[str, str]) -> dict[str, str]:
    """What is kept under the keys of ``ours``: of workers that start at once, one puts its own there; the others find
    it."""
    async with database.write() as connection:
        await connection.execute(database.insert_ignore(meta), [{"key": key, "value": ours[key]} for key in ours])
        found = await connection.execute(select(meta.c.key, meta.c.value).where(meta.c.key.in_(list(ours))))
        return {row.key: row.value for row in found}


def _session_key(secret: bytes, id: bytes) -> bytes:
    return hmac.digest(secret, b"dashboard session:" + id, "sha256")


def _hash(salt: bytes, token: str) -> bytes:
    # A slow hash protects what people choose. These are 256 random bits (or as long as the operator likes): nobody can
    # try them all however fast the hash is, and a slow one would only let a stranger keep the gateway busy.
    return hashlib.sha256(salt + token.encode("utf-8", "surrogatepass")).digest()


def _slow_hash(token: str) -> bytes:
    """For the id alone. People choose this one, its id is written down, and its salt cannot be random."""
    return hashlib.scrypt(token.encode("utf-8", "surrogatepass"), salt=b"groundlane admin token", n=2**13, r=8, p=1)
