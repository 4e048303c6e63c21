"""The gateway with a monitor of its event loop: ``GET /benchmark/lag`` returns the lag since the last
call.

The loop runs a callback every five milliseconds. ``late`` is the delay of each callback, including delays caused by
other work on the machine. ``busy`` is the CPU time of the loop's thread between two callbacks. It excludes other work,
so it shows how long the loop itself delayed the callback.
"""

import asyncio
from time import thread_time
from typing import Any

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from app.cli.serve import build_app as build_gateway
from benchmarks.latency import LAG

_EVERY_S = 0.005


class Watched:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._found: dict[str, list[float]] = {"late": [], "busy": []}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due = self._spent = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != LAG:
            await self._app(scope, receive, send)
            return
        body = orjson.dumps(self._told())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    def _told(self) -> dict[str, Any]:
        found, self._found = self._found, {"late": [], "busy": []}
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._wait()
        return found

    def _wait(self) -> None:
        assert self._loop is not None
        self._due, self._spent = self._loop.time() + _EVERY_S, thread_time()
        self._loop.call_at(self._due, self._called)

    def _called(self) -> None:
        assert self._loop is not None
        self._found["late"].append(max(0.0, self._loop.time() - self._due) * 1e3)
        self._found["busy"].append((thread_time() - self._spent) * 1e3)
        self._wait()


def build_app() -> ASGIApp:
    return Watched(build_gateway())
