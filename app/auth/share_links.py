"""Links that let people without an account view one trace for a limited time.

A link contains a signed token with the share's id and its expiry time. The share is stored in the database, so that it
can be revoked. The database alone isn't enough to create a link, because tokens are signed with the server's key.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, delete, insert, select, update

from app.auth.audit_log import note
from app.db.database import Database
from app.db.tables import requests, trace_shares
from app.errors import NotFoundError

_TOKEN = re.compile(r"(share_[0-9a-f]{32})\.([0-9]{1,12})\.([0-9a-f]{64})")
_KEPT = trace_shares.c.revoked_at.is_(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceShare:
    """A share of one request's trace."""

    id: str
    request_id: str
    created_at: datetime
    expires_at: datetime


class ShareLinks:
    """The shares in a database. ``key`` signs the tokens. A share lasts at most ``longest``, even if it was created
    when the limit was higher. Changes are recorded in the audit log. All methods except ``token`` raise
    DatabaseUnavailableError."""

    def __init__(self, database: Database, key: bytes, *, longest: timedelta) -> None:
        self._database, self._key = database, hmac.digest(key, b"trace share", "sha256")
        self._longest = longest

    async def create(self, request_id: str, lasts: timedelta) -> TraceShare:
        """Share a trace. Raises NotFoundError if there is no such request."""
        now = datetime.now(UTC)
        share = TraceShare(
            id=f"share_{uuid4().hex}",
            request_id=request_id,
            created_at=now,
            expires_at=(now + lasts).replace(microsecond=0),
        )
        async with self._database.write() as connection:
            known = select(requests.c.request_id).where(requests.c.request_id == request_id)
            if (await connection.execute(known)).first() is None:
                raise NotFoundError(f"request {request_id!r} does not exist")
            await connection.execute(delete(trace_shares).where(trace_shares.c.expires_at < now))
            row = {name: getattr(share, name) for name in ("id", "request_id", "created_at", "expires_at")}
            await connection.execute(insert(trace_shares), row)
            await note(connection, "trace.share", request_id, after=_noted(share))
        return share

    async def list(self, request_id: str) -> Sequence[TraceShare]:
        """Return the active shares of a trace, newest first."""
        columns = trace_shares.c
        query = select(trace_shares).where(columns.request_id == request_id, *self._active())
        async with self._database.read() as connection:
            return [
                _share(row) for row in await connection.execute(query.order_by(columns.created_at.desc(), columns.id))
            ]

    async def revoke(self, share_id: str) -> None:
        """End a share. Raises NotFoundError."""
        async with self._database.write() as connection:
            row = (await connection.execute(select(trace_shares).where(trace_shares.c.id == share_id, _KEPT))).first()
            if row is None:
                raise NotFoundError(f"share {share_id!r} does not exist")
            ended = update(trace_shares).where(trace_shares.c.id == share_id).values(revoked_at=datetime.now(UTC))
            await connection.execute(ended)
            await note(connection, "trace.unshare", row.request_id, before=_noted(_share(row)))

    def token(self, share: TraceShare) -> str:
        """Return the token in the share's link."""
        return self._signed(share.id, int(share.expires_at.timestamp()))

    async def find(self, token: str) -> TraceShare | None:
        """Return the share of a token, or None if the token is invalid or expired, or the share was revoked."""
        found = _TOKEN.fullmatch(token)
        if found is None or not hmac.compare_digest(token, self._signed(found[1], int(found[2]))):
            return None
        if int(found[2]) <= datetime.now(UTC).timestamp():
            return None
        query = select(trace_shares).where(trace_shares.c.id == found[1], *self._active())
        async with self._database.read() as connection:
            row = (await connection.execute(query)).first()
        return None if row is None else _share(row)

    def _active(self) -> tuple[ColumnElement[bool], ...]:
        """Build the conditions for shares that haven't ended."""
        now = datetime.now(UTC)
        return _KEPT, trace_shares.c.expires_at > now, trace_shares.c.created_at > now - self._longest

    def _signed(self, share_id: str, ends: int) -> str:
        text = f"{share_id}.{ends}"
        return f"{text}.{hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()}"


def _share(row: Any) -> TraceShare:
    return TraceShare(id=row.id, request_id=row.request_id, created_at=row.created_at, expires_at=row.expires_at)


def _noted(share: TraceShare) -> dict[str, Any]:
    return {"share": share.id, "expires_at": share.expires_at.isoformat()}
