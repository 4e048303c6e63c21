"""Starting the gateway: what must be in place before a worker runs, and uvicorn's settings."""

import asyncio
import gc
import math
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

import uvicorn
from fastapi import FastAPI

from app.auth import check_redis
from app.auth.admin_token import AdminAuth
from app.auth.secrets import check_secret_keys
from app.config import load_config
from app.db.database import Database
from app.db.schema import upgrade
from app.main import create_app
from app.observability import configure_logging
from app.settings import Settings, SettingsError, load_settings
from judges.cross_encoder import open_scorer
from judges.cross_encoder.model_files import cores

_KEEP_ALIVE_S = 75
"""Longer than clients and load balancers keep an idle connection, so that it is never closed under a new request."""

_SILENT_S = 120
"""Seconds after which a worker that does not answer its supervisor is replaced, and in which one that is to take over
from another must serve. A large judge takes a while to load, and several that load at once on a busy machine longer."""

_YOUNG = 10_000
"""Containers made between two looks of the garbage collector: a request makes hundreds, and nearly all end with it."""


def check_address(host: str, port: int) -> None:
    """Raises OSError where a server cannot listen there now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


def prepare(settings: Settings) -> str | None:
    """Check what only the start can check, bring the database to this version, and make the admin token if there is
    none. Returns the token if it was made now: show it, it cannot be read again. Runs an event loop of its own.

    Raises SettingsError, DatabaseUrlError or DatabaseUnavailableError.
    """
    load_config(settings)
    check_secret_keys(settings.secret_key)
    check_redis(settings.redis_url)
    try:
        open_scorer(settings.judge)
    except ValueError as error:
        raise SettingsError(f"GROUNDLANE_JUDGE: {error}") from None
    upgrade(settings.database_url)
    return asyncio.run(_make_admin_token(settings))


async def _make_admin_token(settings: Settings) -> str | None:
    database = Database(settings.database_url)
    try:
        return (await AdminAuth.open(database, settings.admin_token)).created
    finally:
        await database.aclose()


def build_app() -> FastAPI:
    """The app of one worker process, from the environment."""
    settings = load_settings()
    configure_logging(settings.log_level, settings.log_format)
    return to_serve(create_app(settings))


def to_serve(app: FastAPI) -> FastAPI:
    """``app``, for a process that does nothing else: the collector passes over what is there once it is open, modules
    and models above all, which would take it longer to look through than all the requests of a second."""
    opened = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
        async with opened(app) as state:
            gc.collect()
            gc.freeze()
            gc.set_threshold(_YOUNG)
            yield state

    app.router.lifespan_context = lifespan
    return app


def serve(settings: Settings, *, host: str, port: int, workers: int) -> None:
    """Serve until SIGTERM or SIGINT, then let open streams end for ``shutdown_grace_s``.

    With several workers, each has metrics of its own in a shared folder, and any of them answers ``/metrics`` for all.
    """
    configure_logging(settings.log_level, settings.log_format)
    with _among(workers, settings) if workers > 1 else nullcontext():
        uvicorn.run(
            "app.cli.serve:build_app",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_worker_healthcheck=_SILENT_S,
            timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_s),
        )


@contextmanager
def _among(workers: int, settings: Settings) -> Iterator[None]:
    """What several workers find in their environment: a folder for their numbers, which the library looks for when it
    is imported, as each worker does anew; and the cores of each one's judge, where the settings name no number."""
    with tempfile.TemporaryDirectory(prefix="groundlane-metrics-") as folder:
        shared = {"PROMETHEUS_MULTIPROC_DIR": folder}
        if settings.judge_threads == 0:
            shared["GROUNDLANE_JUDGE_THREADS"] = str(max(1, cores() // workers))
        before = {name: os.environ.get(name) for name in shared}
        os.environ.update(shared)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
