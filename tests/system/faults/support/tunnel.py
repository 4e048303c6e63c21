"""A TCP proxy in front of any server, which can be cut, silenced and slowed down."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

LIMIT_S = 30.0


class Tunnel:
    """Forwards a loopback port to ``host`` and ``port``.

    ``cut``: existing connections break, and new ones fail. ``hush``: no data passes, but no connection breaks.
    ``slow``: each piece is held for this many seconds. ``mend``: new connections work again.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._cut = self._hushed = False
        self._delay_s = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self.port = 0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="tunnel", daemon=True)
        self._thread.start()
        if not self._started.wait(LIMIT_S):
            raise AssertionError("the tunnel did not start")

    def cut(self) -> None:
        self._do(lambda: (setattr(self, "_cut", True), self._drop()))

    def hush(self) -> None:
        self._do(lambda: setattr(self, "_hushed", True))

    def slow(self, seconds: float) -> None:
        self._do(lambda: setattr(self, "_delay_s", seconds))

    def mend(self) -> None:
        """Silenced connections are broken off, as in a network that has lost them."""

        def mended() -> None:
            if self._hushed:
                self._drop()
            self._cut, self._hushed, self._delay_s = False, False, 0.0

        self._do(mended)

    def close(self) -> None:
        self._do(lambda: self._stop.set())
        self._thread.join(LIMIT_S)

    def _do(self, action: Callable[[], object]) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (action(), done.set()))
        done.wait(LIMIT_S)

    def _drop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        self._cut = True
        self._drop()
        await asyncio.sleep(0.05)  # connections accepted by then have a task now
        while self._connections:
            self._drop()
            await asyncio.wait(self._connections, timeout=0.1)
        await asyncio.sleep(0.05)  # broken connections are closed one turn of the loop later

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        there, back = await asyncio.open_connection(*self._target)
        self._writers |= {writer, back}
        if self._cut:
            self._drop()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, back))
                group.create_task(self._pass(there, writer))
        finally:
            self._writers -= {writer, back}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self._hushed:
                    continue
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                writer.write(data)
                await writer.drain()
        writer.close()
