"""The answer to one request while it comes in: filled by the connection, read by whoever has asked."""

import asyncio
from copy import copy
from typing import Protocol

import httpx

from app.upstream.http.response import Headers, Response


class Source(Protocol):
    """Where an answer comes from."""

    def resume(self) -> None:
        """Go on reading: what was read has been taken."""
        ...

    def give_up(self, answer: "Answer") -> None:
        """Nobody reads that answer any more."""
        ...


class Answer(Response):
    """Lives on when its connection, once all has come, is used for the next request."""

    __slots__ = ("_pieces", "_source", "_waiter", "ended", "error", "headers", "paused", "size", "status_code")

    def __init__(self, source: Source) -> None:
        self.status_code = 0
        """0 as long as there is no head."""
        self.headers: Headers = []
        self.ended = False
        """All of it is here."""
        self.error: httpx.TransportError | None = None
        """Why no more will come."""
        self.size = 0
        """Bytes that are here and not read yet."""
        self.paused = False
        """The connection waits for these to be read."""
        self._source = source
        self._pieces: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None

    def add(self, data: bytes) -> None:
        self._pieces.append(data)
        self.size += len(data)

    def wake(self) -> None:
        """Whoever waits shall look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def news(self) -> None:
        """Wait until something has changed."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def read(self) -> bytes:
        while not self._pieces:
            if self.error is not None:
                raise copy(self.error)  # what is raised has the frames that this is in
            if self.ended:
                return b""
            await self.news()
        pieces, self._pieces, self.size = self._pieces, [], 0
        if self.paused:
            self.paused = False
            self._source.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def aclose(self) -> None:
        if not self.ended and self.error is None:
            self.error = httpx.ReadError("the reply was closed")
            self.wake()
            self._source.give_up(self)
