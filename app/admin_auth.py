"""Who may use the admin API: whoever has the admin token."""

import asyncio
import hashlib
import hmac
import secrets

from pydantic import SecretStr
from sqlalchemy import select

from app.db import Database
from app.tables import meta

_KEY = "admin_token"


class AdminAuth:
    """Checks the admin token. ``created`` is the token if ``open`` has just made it: to be shown once.

    ``id`` is what the audit trail knows it by: the same on every worker and at every start, and no part of it.
    """

    def __init__(self, salt: bytes, digest: bytes, *, id: bytes, created: str | None = None) -> None:
        self._salt, self._digest = salt, digest
        self.id = id[:4].hex()
        self.created = created

    @classmethod
    async def open(cls, database: Database, token: SecretStr | None) -> "AdminAuth":
        """``token`` is the one from the settings. Without it the one made at the first start stands, whose hash is in
        the database; if there is none yet, it is made now. Raises DatabaseUnavailableError."""
        salt = secrets.token_bytes(16)
        if token is not None:
            text = token.get_secret_value()
            return cls(salt, _hash(salt, text), id=await asyncio.to_thread(_slow_hash, text))
        new = secrets.token_urlsafe(32)
        ours = f"{salt.hex()}:{_hash(salt, new).hex()}"
        async with database.write() as connection:
            # Of workers that start at once, one makes the token; the others find it made.
            await connection.execute(database.insert_ignore(meta), [{"key": _KEY, "value": ours}])
            kept: str = (await connection.execute(select(meta.c.value).where(meta.c.key == _KEY))).scalar_one()
        kept_salt, kept_digest = kept.split(":")
        digest = bytes.fromhex(kept_digest)
        return cls(bytes.fromhex(kept_salt), digest, id=digest, created=new if kept == ours else None)

    def accepts(self, token: str) -> bool:
        """Whether ``token`` is the admin token; takes the same time whatever is wrong with it."""
        return hmac.compare_digest(_hash(self._salt, token), self._digest)


def _hash(salt: bytes, token: str) -> bytes:
    # A slow hash protects what people choose. These are 256 random bits (or as long as the operator likes): nobody can
    # try them all however fast the hash is, and a slow one would only let a stranger keep the gateway busy.
    return hashlib.sha256(salt + token.encode("utf-8", "surrogatepass")).digest()


def _slow_hash(token: str) -> bytes:
    """For the id alone. People choose this one, its id is written down, and its salt cannot be random."""
    return hashlib.scrypt(token.encode("utf-8", "surrogatepass"), salt=b"groundlane admin token", n=2**13, r=8, p=1)
