"""The composition root."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from app import dashboard
from app.api import admin, completions, grounding, health, messages, passthrough, responses, runs
from app.api import chat_completions as chat
from app.api.authentication import Authentication
from app.api.error_responses import install_error_handlers
from app.api.fast_path import Front, FrontedApp
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


class State(TypedDict):
    """What ``request.state`` holds."""

    resources: Resources
    mcp: McpServer
    key: GatewayKey | None
    """What a call has brought; set for each by the authentication."""


def create_app(settings: Settings, *, scorer: PairScorer | None = None, tracing: Tracing | None = None) -> FastAPI:
    """The gateway as an ASGI app; its lifespan opens and closes all that it needs.

    ``scorer`` stands in for the judge that the settings name, ``tracing`` for what the environment says of it (tests,
    embedding).
    """
    tracing = tracing or open_tracing()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[State]:
        async with open_resources(settings, scorer, tracing) as resources, open_mcp(resources, tracing) as mcp:
            yield {"resources": resources, "mcp": mcp, "key": None}

    app = FrontedApp(
        title="Groundlane",
        description="An OpenAI-compatible gateway that keeps RAG answers grounded.",
        lifespan=lifespan,
        redirect_slashes=False,
        # Their pages run scripts of another host, here beside the dashboard's session.
        docs_url=None,
        redoc_url=None,
    )
    install_error_handlers(app)
    governed = [chat.router, completions.router, responses.router, messages.router]
    app.front = Authentication(Front(app.behind, governed))
    origins = [origin.strip() for origin in (settings.cors_origins or "").split(",") if origin.strip()]
    if origins:
        app.front = CORSMiddleware(
            app.front,
            allow_origins=origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=_EXPOSED_HEADERS,
        )
    if tracing is not None:
        app.front = tracing.app(app.front)
    app.include_router(health.router)
    app.include_router(admin.router)
    if settings.dashboard:
        app.include_router(dashboard.root)
        app.include_router(dashboard.router)
    for router in governed:
        app.include_router(router)
    app.include_router(runs.router)
    app.include_router(grounding.router)
    app.router.routes.extend(MCP_ROUTES)
    app.include_router(passthrough.router)  # last: it takes every /v1 path that no other takes
    return app
