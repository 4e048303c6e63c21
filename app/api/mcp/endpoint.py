"""Handles ``/mcp``. Checks each request, and starts the MCP server on the first one."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from importlib import import_module
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.mcp.host_guard import HostGuard
from app.auth import GatewayKey
from app.errors import GatewayError, InvalidRequestError
from app.observability.tracing import Tracing
from app.resources import Resources
from app.text_checks.presentation import check_to_dict
from judges.concurrency import TaskScope

_INVALID_REQUEST = -32600
_INTERNAL_ERROR = -32603


class _NotInstalledError(GatewayError):
    status = HTTPStatus.NOT_IMPLEMENTED


class _Manager(Protocol):
    """The methods of the SDK's session manager that this module uses."""

    def run(self) -> AbstractAsyncContextManager[None]: ...

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class McpServer:
    """The MCP server of a process, as an ASGI app. It starts on the first request, because importing the SDK takes half
    a second and 30 MB of memory."""

    def __init__(self, resources: Resources, tracing: Tracing | None) -> None:
        self._resources, self._tracing = resources, tracing
        self._guard = HostGuard.of(resources.settings)
        self._tasks = TaskScope()
        self._starting = asyncio.Lock()
        self._manager: _Manager | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._guard.check(scope)
            if scope["method"] != "POST":
                # The server has no sessions, so there is nothing to subscribe to or delete.
                raise InvalidRequestError("Only POST is supported.", status=HTTPStatus.METHOD_NOT_ALLOWED)
            manager = await self._started()
        except GatewayError as error:
            await _refusal(error)(scope, receive, send)
        else:
            await manager.handle_request(scope, receive, send)

    async def aclose(self) -> None:
        await self._tasks.aclose()

    async def _started(self) -> _Manager:
        async with self._starting:
            if self._manager is None:
                manager = await asyncio.to_thread(self._open)
                running = asyncio.Event()
                self._tasks.start(_run(manager, running))
                await running.wait()
                self._manager = manager
            return self._manager

    def _open(self) -> _Manager:
        try:
            server = import_module("app.api.mcp.server")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types"):
                raise
            raise _NotInstalledError("The MCP server is not installed: pip install 'groundlane[mcp]'.") from None
        manager: _Manager = server.open_manager(
            self._check, max_body_bytes=self._resources.settings.max_body_bytes, tracing=self._tracing
        )
        return manager

    async def _check(self, arguments: Mapping[str, Any], request: Request) -> dict[str, Any]:
        key: GatewayKey | None = request.state.key
        return check_to_dict(await self._resources.checks.check(arguments, key=key))


async def _run(manager: _Manager, running: asyncio.Event) -> None:
    async with manager.run():
        running.set()
        await asyncio.Event().wait()  # runs until cancelled


def _refusal(error: GatewayError) -> JSONResponse:
    """Return a JSON-RPC error without a request id."""
    code = _INVALID_REQUEST if error.status < HTTPStatus.INTERNAL_SERVER_ERROR else _INTERNAL_ERROR
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": error.message}}
    headers = {"allow": "POST"} if error.status == HTTPStatus.METHOD_NOT_ALLOWED else error.headers
    return JSONResponse(body, status_code=error.status, headers=headers)


@asynccontextmanager
async def open_mcp(resources: Resources, tracing: Tracing | None = None) -> AsyncIterator[McpServer]:
    """Yield the MCP server, and stop it at the end. With ``tracing``, each message gets a span."""
    server = McpServer(resources, tracing)
    try:
        yield server
    finally:
        await server.aclose()


class _Endpoint:
    """The ASGI app that serves ``/mcp``. It isn't a FastAPI handler, because the SDK sends its own responses."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server: ASGIApp = scope["state"]["mcp"]
        await server(scope, receive, send)


ROUTES = [Route("/mcp", _Endpoint()), Route("/mcp/", _Endpoint())]
