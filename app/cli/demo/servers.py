"""Runs servers in threads, so that the upstream, the gateway and the walkthrough share one process."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

import uvicorn
from starlette.types import ASGIApp

_START_LIMIT_S = 60.0


class ServerStartError(Exception):
    """A server did not start. See the log for the cause."""


class _Server(uvicorn.Server):
    """A server that sets the event ``decided`` once it is running or has failed to start."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.decided = Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.decided.set()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            with suppress(SystemExit):  # uvicorn calls sys.exit if it cannot start.
                super().run(sockets)
        finally:
            self.decided.set()


def bind(port: int) -> socket.socket:
    """Bind a loopback socket to ``port``, or to a free port if it is 0. Raises OSError if the port is in use."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock


@contextmanager
def serving(app: ASGIApp, sock: socket.socket, *, grace_s: int = 5, http: Any = "auto") -> Iterator[str]:
    """Serve ``app`` on ``sock`` while the block runs, and yield its URL. ``http`` is the HTTP protocol class for
    uvicorn. Raises ServerStartError."""
    port = sock.getsockname()[1]
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            http=http,
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=grace_s,
            lifespan="on",
        )
    )
    thread = Thread(target=server.run, args=([sock],), name=f"serve-{port}")
    thread.start()
    try:
        server.decided.wait(_START_LIMIT_S)
        if not server.started:
            raise ServerStartError("the server did not start; see the log above")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
        sock.close()
