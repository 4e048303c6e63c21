"""``/mcp``: a Model Context Protocol server, by which agents check what they are about to say.

It needs the extra ``mcp``; without it the path answers 501.
"""

from app.api.mcp.endpoint import ROUTES, McpServer, open_mcp

__all__ = ["ROUTES", "McpServer", "open_mcp"]
