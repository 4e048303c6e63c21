"""A strict version of aiohttp's connection pool. Invalid or unsolicited data from an upstream never becomes part of
another response.
"""

import asyncio
import ssl
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.tracing import Trace

_KEEPALIVE_S = 60.0
_INTERIM = frozenset(range(100, 200)) - {101}
_MAX_INTERIM = 32
_MAX_SPOILT = 32
"""The maximum number of connections discarded per request because the upstream sent unsolicited data on them."""


class UpstreamConnection(ResponseHandler):
    """A connection that skips interim responses, and fails if there are more than a few of them. aiohttp accepts any
    number. ``requests`` is the number of requests sent on the connection. ``answered`` means that data has arrived
    since the last request began. After a 204 that announces a body, the connection isn't reused, because the body would
    become part of the next response."""

    _interim = 0
    requests = 0
    answered = False

    def set_response_params(self, **options: Any) -> None:
        self._interim = 0
        self.requests += 1
        self.answered = False
        super().set_response_params(**options)

    def data_received(self, data: bytes) -> None:
        self.answered = True
        super().data_received(data)

    def feed_data(self, data: tuple[RawResponseMessage, aiohttp.StreamReader], size: int = 0) -> None:
        if data[0].code not in _INTERIM:
            head = data[0]
            if head.code == HTTPStatus.NO_CONTENT and (head.chunked or head.headers.get("content-length", "0") != "0"):
                self.force_close()
            super().feed_data(data, size)
            return
        self._interim += 1
        if self._interim > _MAX_INTERIM and self.transport is not None:
            self.set_exception(HttpProcessingError(message="too many interim responses"))
            self.transport.close()

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Report an error to a reader of the body as well. aiohttp reports invalid HTTP only to a reader that waits for
        the response head."""
        super().set_exception(exc, *cause)
        body = self._payload
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError("the body is not valid HTTP"))


@dataclass(slots=True)
class Attempt:
    """A request in flight, with its connection. ``fresh`` means that it needs a new connection."""

    connection: UpstreamConnection | None = None
    fresh: bool = False

    @property
    def died_on_reuse(self) -> bool:
        """Whether a failed attempt used a reused connection that closed before the upstream sent anything."""
        return self.connection is not None and self.connection.requests > 1 and not self.connection.answered


ATTEMPT: ContextVar[Attempt] = ContextVar("attempt")
"""The request that the current task is sending."""


class ConnectionPool(aiohttp.TCPConnector):
    """A pool of ``UpstreamConnection`` objects. It discards connections with unsolicited data, for example a 408 that a
    server sends before closing. aiohttp would treat such data as the response to the next request.
    """

    def __init__(self, *, limit: int, tls: ssl.SSLContext | None) -> None:
        super().__init__(limit=limit, keepalive_timeout=_KEEPALIVE_S, ssl=tls or True)
        self._factory = cast("partial[ResponseHandler]", partial(UpstreamConnection, asyncio.get_running_loop()))

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        attempt = ATTEMPT.get(None)
        for _ in range(_MAX_SPOILT):
            connection = await super().connect(req, traces, timeout)
            if connection.protocol is not None and not connection.protocol.should_close:
                if attempt is not None and isinstance(connection.protocol, UpstreamConnection):
                    attempt.connection = connection.protocol
                return connection
            connection.close()
        raise aiohttp.ServerDisconnectedError("the upstream sent data before the request")

    async def _get(self, key: Any, traces: list[Trace]) -> Connection | None:
        """Return an idle connection, if there is one and the request may use it."""
        attempt = ATTEMPT.get(None)
        return None if attempt is not None and attempt.fresh else await super()._get(key, traces)
