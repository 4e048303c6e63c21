"""The way in for the calls that there are most of, past the framework."""

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


class Front:
    """ASGI: calls the handlers of ``routers`` straight, and ``app`` for all else.

    Between a socket and a handler that takes nothing but the request, FastAPI spends more than the gateway does on all
    of a request. Its routes stand for its documentation, and for every method but POST.
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


class FrontedApp(FastAPI):
    """A FastAPI app with ASGI layers before all that is its own: what ``behind`` calls, ``front`` is given first."""

    front: ASGIApp

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = describe(super().openapi())
        return self.openapi_schema

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.front(scope, receive, send)

    async def behind(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What FastAPI itself makes of a call."""
        await super().__call__(scope, receive, send)
