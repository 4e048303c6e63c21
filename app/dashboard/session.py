"""Who is looking: sign-in with the admin token, the cookie that stands for it afterwards, and the guard of every page.

The cookie holds no token: it is a random id, the time at which it ends and a signature. The database keeps a hash
of it, so that a session can be ended before its time and nobody who reads the database can make one.
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
LASTS = timedelta(hours=12)
CSRF_FIELD, CSRF_HEADER = "csrf", "x-csrf-token"
ATTEMPTS_PER_MINUTE = 10

_KEPT = "session/"
_PLACES = 4_096
"""So many addresses are told apart, so that strangers cannot fill the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Whoever has signed in. ``csrf`` must come with everything that changes something; ``expires_at``: the session
    ends by then."""

    id: str
    csrf: str
    expires_at: datetime


class Sessions:
    """The sessions of one installation, on all of its workers. ``key`` signs; all but ``guest`` raise
    DatabaseUnavailableError."""

    def __init__(self, database: Database, key: bytes) -> None:
        self._database, self._key = database, key

    async def open(self) -> str:
        """Begin a session. Returns the cookie's value."""
        now = datetime.now(UTC)
        id, ends = secrets.token_urlsafe(32), int((now + LASTS).timestamp())
        # Ten digits until the year 2286: as texts they have the order of the numbers.
        over = meta.c.key.startswith(_KEPT, autoescape=True) & (meta.c.value < str(int(now.timestamp())))
        async with self._database.write() as connection:
            await connection.execute(delete(meta).where(over))
            await connection.execute(meta.insert(), {"key": _kept_as(id), "value": str(ends)})
        return f"{id}.{ends}.{self._sign('session', f'{id}.{ends}')}"

    async def find(self, cookie: str) -> Operator | None:
        """Whose cookie it is; None where it is nobody's, too old, or signed out."""
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
        """End a session; its cookie is worth nothing from here on."""
        async with self._database.write() as connection:
            await connection.execute(delete(meta).where(meta.c.key == _kept_as(operator.id)))

    def guest(self, nonce: str) -> str:
        """What the form for signing in must bring from a browser whose cookie holds ``nonce``."""
        return self._sign("guest", nonce)

    def _sign(self, use: str, text: str) -> str:
        return hmac.new(self._key, f"{use}:{text}".encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _kept_as(id: str) -> str:
    return _KEPT + hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()


def sessions_of(request: Request) -> Sessions:
    resources: Resources = request.state.resources
    return Sessions(resources.database, resources.admin.session_key)


def same(given: str, expected: str) -> bool:
    """Whether a token that must be secret is the expected one; takes the same time whatever is wrong with it."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


async def may_try(request: Request) -> bool:
    """Whether this address may try a token now; each call counts as a try."""
    resources: Resources = request.state.resources
    place = zlib.crc32(_network(request.client.host if request.client else "").encode()) % _PLACES
    return (await resources.limiter.take(f"sign-in {place}", ATTEMPTS_PER_MINUTE)).allowed


def _network(host: str) -> str:
    """Who has one IPv6 address has a whole network of them."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


def set_cookie(request: Request, response: Response, name: str, value: str, *, lasts: timedelta | None) -> None:
    """Give a cookie that no script and no other site can use; ``lasts`` None: until the browser is closed."""
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
    """Whether the browser speaks HTTPS, be it with a proxy. Who lies in that header harms their own cookie alone."""
    forwarded = headers.get("x-forwarded-proto", "").split(",")[0].strip().lower()
    return scheme == "https" or forwarded == "https"


def safe_next(path: str | None) -> str:
    """Where to go after signing in: a page of the dashboard, whatever a link may say."""
    start = f"{PATH}/"
    if path and path.startswith(start) and path.isprintable() and "\\" not in path and len(path) <= 2_000:
        return path
    return start


async def _operator(request: Request) -> Operator:
    return cast(Operator, request.state.operator)


OperatorDep = Annotated[Operator, Depends(_operator)]
"""Whoever has signed in; every page but the one for signing in has one."""
