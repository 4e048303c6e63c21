"""``/mcp``: a Model Context Protocol server that lets agents check text before they send it. Requires the ``mcp``
extra; without it, requests to this path get a 501."""

from app.api.mcp.endpoint import ROUTES, McpServer, open_mcp

__all__ = ["ROUTES", "McpServer", "open_mcp"]
