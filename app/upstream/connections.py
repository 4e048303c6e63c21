"""Connections that hold an upstream to HTTP: one answer for each request, and none before it is asked for."""

import asyncio
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

_MOST_INTERIM = 32
"""Interim answers (RFC 9110, section 15.2) before the one that counts. They are of no use to us, and there may be any
number of them."""
_SWITCHING = 101


class _Answers(ResponseHandler):
    """The protocol of one connection.

    aiohttp's own keeps what comes unasked on an idle connection, be it a server's 408 before it closes that, and gives
    it to whoever is next as the answer to their request.
    """

    _due: bool | None = None
    """Whether an answer is waited for; None until the first request."""
    _interim = 0

    def set_response_params(self, **options: Any) -> None:
        self._due, self._interim = True, 0
        super().set_response_params(**options)

    def data_received(self, data: bytes) -> None:
        if self._due is False and data and (self._payload is None or self._payload.is_eof()):
            self.close()  # and so it will not be used again
        else:
            super().data_received(data)

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        super().set_exception(exc, *cause)
        body = self._payload
        if isinstance(exc, HttpProcessingError) and body is not None and not body.is_eof() and not body.exception():
            # aiohttp tells only who waits for a head of bytes that cannot be read, and stops its own clock: whoever
            # waits for the rest of a body would wait for good.
            body.set_exception(aiohttp.ClientPayloadError("the body cannot be read"))

    def feed_data(self, data: Any, size: int = 0) -> None:
        if not self._due:
            self.force_close()
        elif 100 <= data[0].code < 200 and data[0].code != _SWITCHING:
            self._interim += 1
            if self._interim > _MOST_INTERIM:
                self._due = False
                self.set_exception(HttpProcessingError(message="too many interim answers"))
                if self.transport is not None:
                    self.transport.close()
        else:
            self._due = False
            super().feed_data(data, size)


class Connector(aiohttp.TCPConnector):
    """A pool of such connections; made inside the running loop."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = partial(_connected, self._loop)


def _connected(loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return _Answers(loop=loop)
