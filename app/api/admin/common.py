"""Code shared by the admin API's routes: pages, cursors, ETags and authentication."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, cast

import orjson
from fastapi import Depends, Header, HTTPException, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, StringConstraints
from starlette.types import Message, Receive

from app.dependencies import authenticate
from app.errors import AdminError, ForbiddenError, InvalidAdminRequestError, PreconditionError
from app.identity import Principal, required_role

_LARGEST_BODY = 1024 * 1024
REQUIRED_ROLE = "x-required-role"
"""The OpenAPI extension field that names the role an operation requires."""

Limit = Annotated[int, Query(ge=1, le=500, description="Maximum number of items")]
CursorText = Annotated[str, StringConstraints(max_length=1_000)]


class AdminRoute(APIRoute):
    """Checks the token and its role before reading the body, limits the size of the body, and rejects unknown query
    parameters.

    Every handler must declare its required role with ``app.identity.requires``. A handler without one responds with
    403. The caller is available as ``PrincipalDep``.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.openapi_extra = {REQUIRED_ROLE: required_role(endpoint)} | (self.openapi_extra or {})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        known = _query_parameters(self.dependant)

        async def guarded(request: Request) -> Response:
            principal = await authenticate(request)
            principal.check(self.endpoint)
            request.state.principal = principal
            if unknown := [name for name in request.query_params if name not in known]:
                raise _unknown_parameters(unknown, known)
            length = request.headers.get("content-length", "0")
            if length.isdecimal() and int(length) > _LARGEST_BODY:
                raise _too_large()
            return await handle(Request(request.scope, _bounded(request.receive)))

        return guarded


async def guarded_only(request: Request) -> None:
    """Deny access to a route that isn't an AdminRoute. Raises ForbiddenError."""
    if not isinstance(request.scope.get("route"), AdminRoute):
        raise ForbiddenError("This operation doesn't declare a required role, so access is denied.")


async def _principal(request: Request) -> Principal:
    return cast(Principal, request.state.principal)


PrincipalDep = Annotated[Principal, Depends(_principal)]
"""The caller. Available in every ``AdminRoute``."""


def _query_parameters(dependant: Dependant) -> frozenset[str]:
    """Return the names of the query parameters that a handler declares, either directly or as fields of a model."""
    names: set[str] = set().union(*map(_query_parameters, dependant.dependencies))
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            names.update(info.alias or name for name, info in model.model_fields.items())
        else:
            names.add(field.alias)
    return frozenset(names)


def _unknown_parameters(unknown: Sequence[str], known: Collection[str]) -> InvalidAdminRequestError:
    allowed = f"; known: {', '.join(sorted(known))}" if known else ""
    errors = [{"loc": ["query", name], "msg": f"unknown query parameter{allowed}"} for name in unknown]
    return InvalidAdminRequestError(f"unknown query parameter {unknown[0]!r}{allowed}", errors=errors)


def _bounded(receive: Receive) -> Receive:
    """Wrap ``receive`` to raise HTTPException if a body without a declared length is too large. (FastAPI turns other
    exceptions into a 400.)"""
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
    return AdminError(f"the request body exceeds {_LARGEST_BODY} bytes", status=413)


def encode_cursor(*parts: str | float | datetime | None) -> str:
    """Encode the position where the next page starts. Clients must treat it as opaque."""
    return urlsafe_b64encode(orjson.dumps(parts)).rstrip(b"=").decode()


def decode_cursor(cursor: str, *types: Any) -> tuple[Any, ...]:
    """Return the parts that were passed to ``encode_cursor``. Raises InvalidAdminRequestError for an invalid cursor."""
    try:
        parts = orjson.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if isinstance(parts, list) and len(parts) == len(types):
            return tuple(_part(part, kind) for part, kind in zip(parts, types, strict=True))
    except ValueError:
        pass
    raise invalid_cursor()


def invalid_cursor() -> InvalidAdminRequestError:
    detail = "invalid cursor for this list"
    return InvalidAdminRequestError(f"cursor: {detail}", errors=[{"loc": ["query", "cursor"], "msg": detail}])


def _part(part: Any, kind: Any) -> Any:
    if kind is datetime and isinstance(part, str):
        part = utc(datetime.fromisoformat(part))
    if not isinstance(part, kind) or isinstance(part, bool) or (isinstance(part, str) and "\0" in part):
        raise ValueError("wrong type")
    return part


def utc(time: datetime) -> datetime:
    """Convert ``time`` to UTC. Raises ValueError if ``time`` has no time zone, or is out of range in UTC (the last
    hours of 9999)."""
    if time.tzinfo is None:
        raise ValueError("the time must include a time zone, such as Z")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time is out of range") from None


def page(items: Sequence[Any], next_cursor: str | None) -> dict[str, Any]:
    """Return the response for one page of a list."""
    return {"items": items, "next_cursor": next_cursor}


def etag(version: int) -> str:
    return f'"{version}"'


async def _expected(
    if_match: Annotated[str | None, Header(description="ETag of the version that you last read")] = None,
) -> int | None:
    if if_match is None or if_match.strip() == "*":
        return None
    tag = if_match.strip()
    if not (tag.startswith('"') and tag.endswith('"') and tag[1:-1].isdecimal() and len(tag) < 12):
        raise PreconditionError('If-Match must be a single ETag, such as "3"')
    return int(tag[1:-1])


Expected = Annotated[int | None, Depends(_expected)]
"""The version in ``If-Match``, or None to accept any version."""
