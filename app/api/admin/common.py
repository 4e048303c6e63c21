"""Shared by the admin API: pages, cursors, ETags and authentication."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from fastapi import Depends, Header, HTTPException, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import StringConstraints
from starlette.types import Message, Receive

from app.dependencies import require_admin
from app.errors import AdminError, InvalidAdminRequestError, PreconditionError

_LARGEST_BODY = 1024 * 1024

Limit = Annotated[int, Query(ge=1, le=500, description="Maximum number of items")]
CursorText = Annotated[str, StringConstraints(max_length=1_000)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A name or id in a path or query."""


class AdminRoute(APIRoute):
    """Checks the token before it reads the body, and limits the size of bodies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            await require_admin(request)
            length = request.headers.get("content-length", "0")
            if length.isdecimal() and int(length) > _LARGEST_BODY:
                raise _too_large()
            return await handle(Request(request.scope, _bounded(request.receive)))

        return guarded


def _bounded(receive: Receive) -> Receive:
    """``receive`` that raises HTTPException if a body without a declared length is too large. (FastAPI turns other
    errors into 400.)"""
    left = _LARGEST_BODY

    async def bounded() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise HTTPException(_too_large().status, _too_large().message)
        return message

    return bounded


def _too_large() -> AdminError:
    return AdminError(f"the body exceeds {_LARGEST_BODY} bytes", status=413)


def encode_cursor(*parts: str | int | datetime) -> str:
    """The end of a page, opaque to clients."""
    return urlsafe_b64encode(orjson.dumps(parts)).rstrip(b"=").decode()


def decode_cursor(cursor: str, *types: type[Any]) -> tuple[Any, ...]:
    """The parts given to ``encode_cursor``. Raises InvalidAdminRequestError for an invalid cursor."""
    try:
        parts = orjson.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if isinstance(parts, list) and len(parts) == len(types):
            return tuple(_part(part, kind) for part, kind in zip(parts, types, strict=True))
    except ValueError:
        pass
    detail = "not a cursor of this list"
    raise InvalidAdminRequestError(f"cursor: {detail}", errors=[{"loc": ["query", "cursor"], "msg": detail}])


def _part(part: Any, kind: type[Any]) -> Any:
    if kind is datetime and isinstance(part, str):
        part = utc(datetime.fromisoformat(part))
    if not isinstance(part, kind) or isinstance(part, bool) or (isinstance(part, str) and "\0" in part):
        raise ValueError("wrong type")
    return part


def utc(time: datetime) -> datetime:
    """``time`` in UTC. Raises ValueError without a time zone, or if it is out of range in UTC (the last hours of
    9999)."""
    if time.tzinfo is None:
        raise ValueError("expected a time zone")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("time out of range") from None


def page(items: Sequence[Any], next_cursor: str | None) -> dict[str, Any]:
    """The response of a list."""
    return {"items": items, "next_cursor": next_cursor}


def etag(version: int) -> str:
    return f'"{version}"'


async def _expected(
    if_match: Annotated[str | None, Header(description="ETag of the version that you read")] = None,
) -> int | None:
    if if_match is None or if_match.strip() == "*":
        return None
    tag = if_match.strip()
    if not (tag.startswith('"') and tag.endswith('"') and tag[1:-1].isdecimal() and len(tag) < 12):
        raise PreconditionError('If-Match must be a single ETag, such as "3"')
    return int(tag[1:-1])


Expected = Annotated[int | None, Depends(_expected)]
"""The version in ``If-Match``; None changes any version."""
