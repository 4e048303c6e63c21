"""Starts the gateway: runs checks before the workers start, and configures uvicorn."""

import asyncio
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
from app.cli.http_protocol import http_protocol
from app.cli.process_tuning import collect_regularly, tune
from app.config import load_config
from app.db.database import Database
from app.db.schema import upgrade
from app.main import create_app
from app.observability import configure_logging
from app.settings import Settings, SettingsError, load_settings
from judges.concurrency import TaskScope
from judges.cross_encoder import open_scorer
from judges.cross_encoder.model_files import cores

_KEEP_ALIVE_S = 75
"""Seconds to keep an idle connection open. Clients and load balancers close idle connections sooner, so they never
reuse a connection that the gateway has closed."""

_WORKER_TIMEOUT_S = 120
"""Seconds until an unresponsive worker is replaced. The new worker must be ready within the same time. The limit is
high because large judges load slowly, especially several at once on a busy machine."""


def check_address(host: str, port: int) -> None:
    """Check that a server can listen on the address now. Raises OSError if it can't."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


def prepare(settings: Settings) -> str | None:
    """Check the configuration, upgrade the database, and create the admin token if there is none. Return the new token,
    or None. The caller must show a new token, because it can't be retrieved later. Don't call this in an event loop.

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
    """Build the application for a worker process, with settings from the environment."""
    settings = load_settings()
    configure_logging(settings.log_level, settings.log_format)
    return to_serve(create_app(settings))


def to_serve(app: FastAPI) -> FastAPI:
    """Prepare ``app`` for a process that does nothing else, by tuning the process after startup."""
    opened = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
        async with opened(app) as state:
            tune()
            scope = TaskScope()
            scope.start(collect_regularly())
            try:
                yield state
            finally:
                await scope.aclose()

    app.router.lifespan_context = lifespan
    return app


def serve(settings: Settings, *, host: str, port: int, workers: int) -> None:
    """Serve until SIGTERM or SIGINT, then wait up to ``shutdown_grace_s`` seconds for open streams to end.

    With several workers, metrics are kept in a shared folder, so that each worker can serve ``/metrics`` for all of
    them.
    """
    configure_logging(settings.log_level, settings.log_format)
    with _shared_by_workers(workers, settings) if workers > 1 else nullcontext():
        uvicorn.run(
            "app.cli.serve:build_app",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            log_config=None,
            access_log=False,
            http=http_protocol(settings),
            ws="none",
            server_header=False,
            lifespan="on",
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_worker_healthcheck=_WORKER_TIMEOUT_S,
            timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_s),
        )


@contextmanager
def _shared_by_workers(workers: int, settings: Settings) -> Iterator[None]:
    """Set the environment variables that multiple workers need: the metrics folder, which the metrics library reads on
    import, and, unless it is configured, the number of threads for each judge."""
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
