"""The composition root."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import TypedDict

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from app import dashboard
from app.api import admin, grounding, health, llm, passthrough, runs
from app.api.api_key_middleware import ApiKeyMiddleware
from app.api.error_responses import install_error_handlers
from app.api.fast_path import FastPath, GatewayApp
from app.api.mcp import ROUTES as MCP_ROUTES
from app.api.mcp import McpServer, open_mcp
from app.auth import GatewayKey
from app.observability.tracing import Tracing, open_tracing
from app.resources import Resources, open_resources
from app.settings import Settings
from judges.protocols import PairScorer

_EXPOSED_HEADERS = [
    "x-groundlane-request-id",
    "x-groundlane-action",
    "x-groundlane-verdict",
    "x-groundlane-trust-score",
    "x-request-id",
    "retry-after",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
]


class AppState(TypedDict):
    """The typed state of the app, available as ``request.state``."""

    resources: Resources
    mcp: McpServer
    key: GatewayKey | None
    """The call's gateway key, set by the API key middleware."""


def create_app(settings: Settings, *, scorer: PairScorer | None = None, tracing: Tracing | None = None) -> FastAPI:
    """Create the gateway as an ASGI app, whose lifespan opens and closes all resources.

    For tests and embedding, ``scorer`` replaces the judge from the settings, and ``tracing`` replaces the configuration
    from the environment.
    """
    tracing = tracing or open_tracing()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[AppState]:
        async with open_resources(settings, scorer, tracing) as resources, open_mcp(resources, tracing) as mcp:
            yield {"resources": resources, "mcp": mcp, "key": None}

    app = GatewayApp(
        title="Groundlane",
        description="An OpenAI-compatible gateway that keeps RAG answers grounded.",
        lifespan=lifespan,
        redirect_slashes=False,
        # FastAPI's documentation pages load scripts from another host, and those scripts would run on the dashboard's
        # origin. The dashboard therefore has its own documentation page.
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=attrgetter("name"),
    )
    install_error_handlers(app)
    app.entry = ApiKeyMiddleware(FastPath(app.framework, [llm.router]))
    origins = [origin.strip() for origin in (settings.cors_origins or "").split(",") if origin.strip()]
    if origins:
        app.entry = CORSMiddleware(
            app.entry,
            allow_origins=origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=_EXPOSED_HEADERS,
        )
    if tracing is not None:
        app.entry = tracing.app(app.entry)
    app.include_router(health.router)
    app.include_router(admin.router)
    if settings.dashboard:
        app.include_router(dashboard.root)
        app.include_router(dashboard.router)
    app.include_router(llm.router)
    app.include_router(runs.router)
    app.include_router(grounding.router)
    app.router.routes.extend(MCP_ROUTES)
    app.include_router(passthrough.router)  # last: it matches every other path under /v1
    return app
