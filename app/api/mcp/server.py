"""The MCP server and its only tool, built on the official SDK. No other module imports the SDK."""

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any, cast

import orjson
import structlog
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import ValidationError
from starlette.requests import Request

from app.api.mcp.schemas import DESCRIPTION, INPUT, OUTPUT
from app.errors import GatewayError
from app.observability.tracing import Tracing

_log = structlog.stdlib.get_logger(__name__)

Check = Callable[[Mapping[str, Any], Request], Awaitable[dict[str, Any]]]
"""Checks a text. Takes the tool's arguments and the HTTP request, and returns the result."""

_Context = ServerRequestContext[Any, Request]
_TOOL = Tool(
    name="check_grounding",
    title="Check grounding",
    description=DESCRIPTION,
    input_schema=INPUT,
    output_schema=OUTPUT,
    annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
)


def open_manager(check: Check, *, max_body_bytes: int, tracing: Tracing | None = None) -> StreamableHTTPSessionManager:
    """Return the server's transport, which can be run only once. It has no sessions, so any worker can serve any
    request. It responds with JSON instead of a stream with a single event. With ``tracing``, each message gets a
    span."""

    async def list_tools(_context: _Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_TOOL])

    async def call_tool(context: _Context, params: CallToolRequestParams) -> CallToolResult:
        if params.name != _TOOL.name:
            raise MCPError(INVALID_PARAMS, f"Unknown tool {params.name!r:.100}; the only tool is {_TOOL.name!r}.")
        request = cast(Request, context.request)  # always set over HTTP
        try:
            result = await check(params.arguments or {}, request)
        except GatewayError as error:
            # The model sees this message and can correct its arguments.
            return CallToolResult(content=[TextContent(text=error.message)], is_error=True)
        except Exception:
            _log.exception("mcp_call_failed")
            raise MCPError(INTERNAL_ERROR, "Internal error. See the gateway's log.") from None
        text = orjson.dumps(result).decode()
        return CallToolResult(content=[TextContent(text=text)], structured_content=result)

    server: Server[Any] = Server(
        "groundlane",
        title="Groundlane",
        version=version("groundlane"),
        instructions="Checks texts against their sources, claim by claim.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    # The SDK's own spans would go to the process-wide provider, which may not be the one in use.
    server.middleware[:] = [] if tracing is None else [_traced(tracing)]
    return StreamableHTTPSessionManager(
        server, json_response=True, stateless=True, max_request_body_size=max_body_bytes
    )


def _traced(tracing: Tracing) -> ServerMiddleware[Any]:
    """Return middleware that creates a span for each message, following the semantic conventions for MCP."""

    async def middleware(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        calls = ctx.method == "tools/call"
        target = _TOOL.name if calls and (ctx.params or {}).get("name") == _TOOL.name else None
        attributes = {
            "mcp.method.name": ctx.method,
            "mcp.protocol.version": ctx.protocol_version,
            "jsonrpc.request.id": None if ctx.request_id is None else str(ctx.request_id),
            "gen_ai.operation.name": "execute_tool" if calls else None,
            "gen_ai.tool.name": target,
        }
        name = f"{ctx.method} {target}" if target else ctx.method
        with tracing.message(name, attributes, ctx.meta or {}) as failed:
            try:
                result = await call_next(ctx)
            except MCPError as error:
                failed(str(error.error.code))
                raise
            except ValidationError:
                failed(str(INVALID_PARAMS))
                raise
            except Exception as error:
                failed(type(error).__qualname__)
                raise
            match result:
                case CallToolResult(is_error=True) | {"isError": True}:
                    failed("tool_error")
            return result

    return middleware
