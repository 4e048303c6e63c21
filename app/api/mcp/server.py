"""The MCP server itself, over the official SDK: its one tool. The only module that imports the SDK."""

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any, cast

import orjson
import structlog
from mcp.server.context import ServerRequestContext
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
from starlette.requests import Request

from app.api.mcp.schemas import DESCRIPTION, INPUT, OUTPUT
from app.errors import GatewayError

_log = structlog.stdlib.get_logger(__name__)

Check = Callable[[Mapping[str, Any], Request], Awaitable[dict[str, Any]]]
"""Checks a text: the arguments of the tool and the request that they came with in, the result out."""

_Context = ServerRequestContext[Any, Request]
_TOOL = Tool(
    name="check_grounding",
    title="Check grounding",
    description=DESCRIPTION,
    input_schema=INPUT,
    output_schema=OUTPUT,
    annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
)


def open_manager(check: Check, *, max_body_bytes: int) -> StreamableHTTPSessionManager:
    """The transport over the server, to be run once. It keeps no sessions, so that any worker can answer any request,
    and answers with JSON, not with a stream of one event."""

    async def list_tools(_context: _Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_TOOL])

    async def call_tool(context: _Context, params: CallToolRequestParams) -> CallToolResult:
        if params.name != _TOOL.name:
            raise MCPError(INVALID_PARAMS, f"There is no tool {params.name!r:.100}, only {_TOOL.name!r}.")
        request = cast(Request, context.request)  # there always is one over HTTP
        try:
            result = await check(params.arguments or {}, request)
        except GatewayError as error:
            # For the model to read: it can mend its arguments.
            return CallToolResult(content=[TextContent(text=error.message)], is_error=True)
        except Exception:
            _log.exception("mcp_call_failed")
            raise MCPError(INTERNAL_ERROR, "Something went wrong; the gateway's log says what.") from None
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
    return StreamableHTTPSessionManager(
        server, json_response=True, stateless=True, max_request_body_size=max_body_bytes
    )
