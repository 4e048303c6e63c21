"""Dashboard sessions: operators sign in with the admin token and get a cookie in exchange.

The cookie doesn't contain the token: it is a random id, an expiry time and a signature. The database stores a hash of
the id, so that a session can be ended early and nobody who reads the database can forge one.
"""

import hashlib
import hmac
import ipaddress
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, cast

from fastapi import Depends, Request, Response
from sqlalchemy import delete, select

from app.db.database import Database
from app.db.tables import meta
from app.resources import Resources

COOKIE, GUEST_COOKIE = "groundlane_session", "groundlane_guest"
PATH = "/dashboard"
LIFETIME = timedelta(hours=12)
CSRF_FIELD, CSRF_HEADER = "csrf", "x-csrf-token"
ATTEMPTS_PER_MINUTE = 10

_KEPT = "session/"
_PLACES = 4_096
"""Addresses are hashed into this many buckets, so that strangers can't fill the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A signed-in session. Every change must send ``csrf``; the session ends at ``expires_at`` at the latest."""

    id: str
    csrf: str
    expires_at: datetime


class Sessions:
    """The sessions of an installation, shared by all workers. ``key`` signs the cookies. All methods but ``guest``
    raise DatabaseUnavailableError."""

    def __init__(self, database: Database, key: bytes) -> None:
        self._database, self._key = database, key

    async def open(self) -> str:
        """Start a session and return the cookie's value."""
        now = datetime.now(UTC)
        id, ends = secrets.token_urlsafe(32), int((now + LIFETIME).timestamp())
        # Timestamps have ten digits until the year 2286, so comparing them as text is correct.
        over = meta.c.key.startswith(_KEPT, autoescape=True) & (meta.c.value < str(int(now.timestamp())))
        async with self._database.write() as connection:
            await connection.execute(delete(meta).where(over))
            await connection.execute(meta.insert(), {"key": _kept_as(id), "value": str(ends)})
        return f"{id}.{ends}.{self._sign('session', f'{id}.{ends}')}"

    async def find(self, cookie: str) -> Operator | None:
        """Return a cookie's session, or None if the cookie is forged or expired or its session has ended."""
        id, _, rest = cookie.partition(".")
        ends, _, signature = rest.partition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("session", f"{id}.{ends}").encode()):
            return None
        expires_at = datetime.fromtimestamp(int(ends), UTC)
        if expires_at <= datetime.now(UTC):
            return None
        async with self._database.read() as connection:
            found = (await connection.execute(select(meta.c.key).where(meta.c.key == _kept_as(id)))).first()
        return None if found is None else Operator(id=id, csrf=self._sign("csrf", id), expires_at=expires_at)

    async def close(self, operator: Operator) -> None:
        """End a session; its cookie is invalid from then on."""
        async with self._database.write() as connection:
            await connection.execute(delete(meta).where(meta.c.key == _kept_as(operator.id)))

    def guest(self, nonce: str) -> str:
        """Return the CSRF token for the sign-in form, for a browser whose guest cookie contains ``nonce``."""
        return self._sign("guest", nonce)

    def _sign(self, use: str, text: str) -> str:
        return hmac.new(self._key, f"{use}:{text}".encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _kept_as(id: str) -> str:
    return _KEPT + hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()


def sessions_of(request: Request) -> Sessions:
    resources: Resources = request.state.resources
    return Sessions(resources.database, resources.admin.session_key)


def tokens_match(given: str, expected: str) -> bool:
    """Compare a secret token with the expected one in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


async def may_attempt_sign_in(request: Request) -> bool:
    """Whether this address may try to sign in now. Each call counts as an attempt."""
    resources: Resources = request.state.resources
    place = zlib.crc32(_network(request.client.host if request.client else "").encode()) % _PLACES
    return (await resources.limiter.take(f"sign-in {place}", ATTEMPTS_PER_MINUTE)).allowed


def _network(host: str) -> str:
    """Return the address itself or, for IPv6, its /64 network, because one client controls all of it."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


def set_cookie(request: Request, response: Response, name: str, value: str, *, lasts: timedelta | None) -> None:
    """Set a cookie that is HttpOnly and SameSite=Strict. If ``lasts`` is None, it lasts until the browser closes."""
    response.set_cookie(
        name,
        value,
        max_age=None if lasts is None else int(lasts.total_seconds()),
        path=PATH,
        secure=is_https(request.url.scheme, request.headers),
        httponly=True,
        samesite="strict",
    )


def is_https(scheme: str, headers: Mapping[str, str]) -> bool:
    """Whether the browser uses HTTPS, directly or to a proxy. A forged header affects only the client's own cookie."""
    forwarded = headers.get("x-forwarded-proto", "").split(",")[0].strip().lower()
    return scheme == "https" or forwarded == "https"


def safe_next(path: str | None) -> str:
    """Return the page to show after signing in: ``path`` if it is a dashboard page, otherwise the overview."""
    start = f"{PATH}/"
    if path and path.startswith(start) and path.isprintable() and "\\" not in path and len(path) <= 2_000:
        return path
    return start


async def _operator(request: Request) -> Operator:
    return cast(Operator, request.state.operator)


OperatorDep = Annotated[Operator, Depends(_operator)]
"""The signed-in session; every ``DashboardRoute`` has one."""
