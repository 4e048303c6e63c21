"""One connection to an upstream: a request goes out in one write, its answer comes in, and then the next may follow.

What is timed is timed by one timer a connection, which is set anew only when it has gone off: a request sets none.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from copy import copy
from typing import Protocol, cast

import httpx

from app.concurrency import TaskScope
from app.config import Timeouts
from app.upstream.http.response_body import Answer
from app.upstream.http.response_parser import AnswerParser

_JOINED = 64 * 1024
"""Bodies up to that many bytes are copied behind the head: one write takes less time than two."""
_MOST_UNREAD = 256 * 1024
"""Bytes of an answer that wait to be read before the upstream has to wait."""


class Owner(Protocol):
    """Whose connections these are."""

    def release(self, connection: "Connection") -> None:
        """It is ready for another request."""
        ...

    def lost(self, connection: "Connection") -> None:
        """It is gone. Told once of each, whoever ended it."""
        ...


class Connection(asyncio.Protocol):
    """Answers one request at a time; what comes unasked ends it."""

    def __init__(self, owner: Owner, *, timeouts: Timeouts) -> None:
        self.used = False
        """It has answered before: the upstream may have closed it since, without our knowing."""
        self.is_lost = False
        self._owner, self._loop = owner, asyncio.get_running_loop()
        self._first, self._between = timeouts.first_byte, timeouts.between_bytes
        self._parser = AnswerParser()
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._sent = False
        self._full: asyncio.Future[None] | None = None
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self.is_lost and not self._transport.is_closing()

    @property
    def is_unanswered(self) -> bool:
        """Of the last request's answer there was not a byte."""
        return self._parser.barren == 0

    async def ask(self, head: bytes, body: bytes | AsyncGenerator[bytes], *, bodiless: bool = False) -> Answer:
        """Send a request, framed as it goes out, and wait for the answer's head. ``bodiless``: the answer has no body.

        Raises httpx.TransportError. Cancelling it ends the connection.
        """
        answer = self._answer = Answer(self)
        self._parser.expect(answer, bodiless=bodiless)
        try:
            if isinstance(body, bytes):
                self._write(head, body)
            else:
                await self._upload(head, body, answer)
            if self._answer is answer:
                self._allow(self._first)
            while not answer.status_code:
                if answer.error is not None:
                    raise copy(answer.error)
                await answer.news()
        except BaseException:
            self.give_up(answer)
            raise
        return answer

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()

    # What an answer asks of its connection.

    def resume(self) -> None:
        if self._transport is not None and self._answer is not None:
            self._transport.resume_reading()
            self._allow(self._between)

    def give_up(self, answer: Answer) -> None:
        if self._answer is answer:
            self._answer = self._deadline = None
            self.abort()

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            self.abort()  # nobody has asked
            return
        try:
            grown = self._parser.feed(data)
        except httpx.RemoteProtocolError as error:
            self._fail(error)
            return
        if answer.ended:
            self._end(answer)
        elif grown:
            self._allow(self._between)
            if answer.size > _MOST_UNREAD and not answer.paused:
                answer.paused = True
                self._deadline = None  # it is not the upstream that is slow
                cast(asyncio.Transport, self._transport).pause_reading()
        answer.wake()

    def pause_writing(self) -> None:
        self._full = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._full is not None and not self._full.done():
            self._full.set_result(None)
        self._full = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if self._timer is not None:
            self._timer.cancel()
        answer, self._answer = self._answer, None
        if answer is not None:
            if exc is None and self._parser.ends_with_connection():
                answer.ended = True
            else:
                answer.error = httpx.ReadError(str(exc) if exc is not None else "the upstream closed the connection")
            answer.wake()
        self._owner.lost(self)

    # Sending

    def _write(self, head: bytes, body: bytes) -> None:
        transport = cast(asyncio.Transport, self._transport)
        if len(body) <= _JOINED:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        self._sent = True

    async def _upload(self, head: bytes, body: AsyncGenerator[bytes], answer: Answer) -> None:
        """Send the pieces as they come. An answer that comes before the last of them ends that, as an error does."""
        cast(asyncio.Transport, self._transport).write(head)
        self._sent = False
        tasks = TaskScope()
        sending = tasks.start(self._send(body))

        def ended(sent: asyncio.Task[bool]) -> None:
            if not sent.cancelled():
                sent.exception()  # who is cancelled at that moment does not ask for it
            answer.wake()

        sending.add_done_callback(ended)
        try:
            while not (sending.done() or answer.status_code or answer.error is not None):
                await answer.news()
        finally:
            await tasks.aclose()
        if not (answer.status_code or answer.error is not None):
            self._sent = sending.result()

    async def _send(self, body: AsyncGenerator[bytes]) -> bool:
        """Whether all of it was sent. How long the pieces take to come is not timed, only how long they take to go."""
        async with aclosing(body) as pieces:
            async for piece in pieces:
                if not self.is_open:
                    return False
                cast(asyncio.Transport, self._transport).write(piece)
                if self._full is not None:
                    self._allow(self._first)
                    await self._full
                    self._deadline = None
        return True

    # Ends

    def _end(self, answer: Answer) -> None:
        """All of the answer is here."""
        transport = cast(asyncio.Transport, self._transport)
        self._answer = self._deadline = None
        if answer.paused:
            answer.paused = False
            transport.resume_reading()
        if self._sent and self._parser.keep_alive and self.is_open and not transport.get_write_buffer_size():
            self.used = True
            self._owner.release(self)
        else:
            transport.abort()

    def _fail(self, error: httpx.TransportError) -> None:
        answer, self._answer, self._deadline = self._answer, None, None
        if answer is not None:
            answer.error = error
            answer.wake()
        self.abort()

    # Time

    def _allow(self, seconds: float) -> None:
        """Let the upstream be silent for that long, from now on."""
        self._deadline = due = self._loop.time() + seconds
        if self._timer is None or self._timer_due > due:
            self._look_at(due)

    def _look_at(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due = self._loop.call_at(due, self._look), due

    def _look(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._look_at(self._deadline)
        else:
            kind = httpx.ReadTimeout if self._full is None else httpx.WriteTimeout
            self._fail(kind("the upstream was silent for too long"))
