"""Who may use the admin API: whoever has the admin token."""

import hashlib
import hmac
import secrets

from pydantic import SecretStr
from sqlalchemy import select

from app.db import Database
from app.tables import meta

_KEY = "admin_token"


class AdminAuth:
    """Checks the admin token. ``created`` is the token if ``open`` has just made it: to be shown once."""

    def __init__(self, salt: bytes, digest: bytes, *, created: str | None = None) -> None:
        self._salt, self._digest = salt, digest
        self.created = created

    @classmethod
    async def open(cls, database: Database, token: SecretStr | None) -> "AdminAuth":
        """``token`` is the one from the settings. Without it the one made at the first start stands, whose hash is in
        the database; if there is none yet, it is made now. Raises DatabaseUnavailableError."""
        salt = secrets.token_bytes(16)
        if token is not None:
            return cls(salt, _hash(salt, token.get_secret_value()))
        new = secrets.token_urlsafe(32)
        ours = f"{salt.hex()}:{_hash(salt, new).hex()}"
        async with database.write() as connection:
            # Of workers that start at once, one makes the token; the others find it made.
            await connection.execute(database.insert_ignore(meta), [{"key": _KEY, "value": ours}])
            kept: str = (await connection.execute(select(meta.c.value).where(meta.c.key == _KEY))).scalar_one()
        kept_salt, kept_digest = kept.split(":")
        return cls(bytes.fromhex(kept_salt), bytes.fromhex(kept_digest), created=new if kept == ours else None)

    def accepts(self, token: str) -> bool:
        """Whether ``token`` is the admin token; takes the same time whatever is wrong with it."""
        return hmac.compare_digest(_hash(self._salt, token), self._digest)


def _hash(salt: bytes, token: str) -> bytes:
    # A slow hash protects what people choose. These are 256 random bits (or as long as the operator likes): nobody can
    # try them all however fast the hash is, and a slow one would only let a stranger keep the gateway busy.
    return hashlib.sha256(salt + token.encode("utf-8", "surrogatepass")).digest()
