"""Bypasses FastAPI for the most frequent calls."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute, APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.error_responses import answer_error
from app.api.openapi import describe

Handler = Callable[[Request], Awaitable[Response]]


class FastPath:
    """An ASGI app that sends POST requests directly to the handlers of ``routers``, and everything else to ``app``.

    FastAPI uses more CPU time to call a handler than the gateway needs for the rest of the request, even if the handler
    has no parameters besides the request. The FastAPI routes remain for the OpenAPI schema and for other methods.
    """

    def __init__(self, app: ASGIApp, routers: Sequence[APIRouter]) -> None:
        self._app = app
        routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
        self._handlers: Mapping[str, Handler] = {route.path: route.endpoint for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handlers.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if handler is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await handler(request)
        except Exception as error:
            response = await answer_error(request, error)
        await response(scope, receive, send)


class GatewayApp(FastAPI):
    """A FastAPI app behind ASGI layers. ``entry`` gets every call first and passes it on to ``framework``. Trailing
    slashes are removed from the path before the first layer sees it."""

    entry: ASGIApp

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = describe(super().openapi())
        return self.openapi_schema

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/"):
            scope = _without_trailing_slashes(scope)
        await self.entry(scope, receive, send)

    async def framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a call with FastAPI itself."""
        await super().__call__(scope, receive, send)


def _without_trailing_slashes(scope: Scope) -> Scope:
    """Return ``scope`` without the trailing slashes in its path. An encoded slash is part of a name, so it is kept."""
    raw = scope.get("raw_path") or scope["path"].encode()
    kept = raw.rstrip(b"/")
    ends = len(raw) - len(kept)
    return {**scope, "path": scope["path"][:-ends] or "/", "raw_path": kept or b"/"} if ends else scope
