"""The dashboard's session cookies, and the limit on sign-in attempts."""

import hmac
import ipaddress
import zlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, cast

from fastapi import Depends, Request, Response

from app.identity import Operator, Principal, Sessions
from app.resources import Resources

COOKIE, GUEST_COOKIE = "groundlane_session", "groundlane_guest"
PATH = "/dashboard"
CSRF_FIELD, CSRF_HEADER = "csrf", "x-csrf-token"
ATTEMPTS_PER_MINUTE = 10

_PLACES = 4_096
"""Addresses are hashed into this many buckets, so that attackers can't exhaust memory."""


def sessions_of(request: Request) -> Sessions:
    resources: Resources = request.state.resources
    return resources.identity.sessions


async def start_session(request: Request, response: Response, principal: Principal, *, before: str | None) -> None:
    """Sign ``principal`` in: start a session and set its cookie. Also end the browser's previous session, whose
    id is ``before``, because someone who knows the old cookie could continue it. Raises
    DatabaseUnavailableError."""
    sessions = sessions_of(request)
    if before is not None:
        await sessions.close(before)
    address = request.client.host if request.client else None
    cookie = await sessions.open(principal, address=address, browser=request.headers.get("user-agent"))
    set_cookie(request, response, COOKIE, cookie, lasts=sessions.lifetime)
    response.delete_cookie(GUEST_COOKIE, path=PATH)


def tokens_match(given: str, expected: str) -> bool:
    """Compare a secret token with the expected one in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def session_id(request: Request) -> str | None:
    """Return the id of the request's session, if it has one."""
    operator: Operator | None = request.state.operator
    return None if operator is None else operator.id


async def may_attempt_sign_in(request: Request) -> bool:
    """Whether the client's address may try to sign in now. Each call counts as an attempt."""
    resources: Resources = request.state.resources
    place = zlib.crc32(_network(request.client.host if request.client else "").encode()) % _PLACES
    return (await resources.limiter.take(f"sign-in {place}", ATTEMPTS_PER_MINUTE)).allowed


def _network(host: str) -> str:
    """Return the address or, for IPv6, its /64 network, because a single client usually controls a whole /64."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


def set_cookie(request: Request, response: Response, name: str, value: str, *, lasts: timedelta | None) -> None:
    """Set a cookie that is HttpOnly and SameSite=Strict. If ``lasts`` is None, the cookie lasts until the browser is
    closed."""
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
    """Whether the browser uses HTTPS, either directly or through a proxy. A forged header affects only the client's own
    cookie."""
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
"""The signed-in session. Available in every ``DashboardRoute``."""
