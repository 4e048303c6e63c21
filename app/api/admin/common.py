"""What the lists and changes of the admin API have in common: pages, cursors, ETags, who may ask."""

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

Limit = Annotated[int, Query(ge=1, le=500, description="Most items of one page")]
CursorText = Annotated[str, StringConstraints(max_length=1_000)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A name or id in a path or query."""


class AdminRoute(APIRoute):
    """Asks for the token before a byte of the body is read, and takes no body of unreasonable size."""

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
    """``receive``, which raises HTTPException once a body is too large that did not say its length. (Of any other error
    the framework makes a 400.)"""
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
    return AdminError(f"the body is larger than {_LARGEST_BODY} bytes", status=413)


def encode_cursor(*parts: str | int | datetime) -> str:
    """Where a page ends, opaque to the client."""
    return urlsafe_b64encode(orjson.dumps(parts)).rstrip(b"=").decode()


def decode_cursor(cursor: str, *types: type[Any]) -> tuple[Any, ...]:
    """The parts that ``encode_cursor`` was given. Raises InvalidAdminRequestError for anything else."""
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
        raise ValueError("a part of another type")
    return part


def utc(time: datetime) -> datetime:
    """``time`` in UTC. Raises ValueError where it has no zone, or is none that UTC knows (the last hours of 9999)."""
    if time.tzinfo is None:
        raise ValueError("a time without a time zone")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("a time beyond those of the calendar") from None


def page(items: Sequence[Any], next_cursor: str | None) -> dict[str, Any]:
    """A list's answer."""
    return {"items": items, "next_cursor": next_cursor}


def etag(version: int) -> str:
    return f'"{version}"'


async def _expected(
    if_match: Annotated[str | None, Header(description="ETag of the version you have seen")] = None,
) -> int | None:
    if if_match is None or if_match.strip() == "*":
        return None
    tag = if_match.strip()
    if not (tag.startswith('"') and tag.endswith('"') and tag[1:-1].isdecimal() and len(tag) < 12):
        raise PreconditionError('If-Match must be one ETag as it was given, such as "3"')
    return int(tag[1:-1])


Expected = Annotated[int | None, Depends(_expected)]
"""The version in ``If-Match``; None where the client does not mind which one it changes."""
