"""aiohttp's connection pool, made strict: what one upstream sends wrongly or unasked is no part of another response."""

import asyncio
import ssl
from functools import partial
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
"""Connections that are given up for one request because the upstream sent something on them before it was asked."""


class UpstreamConnection(ResponseHandler):
    """A connection that skips interim responses, and fails on more than a few of them; aiohttp takes any number."""

    _interim = 0

    def set_response_params(self, **options: Any) -> None:
        self._interim = 0
        super().set_response_params(**options)

    def feed_data(self, data: tuple[RawResponseMessage, aiohttp.StreamReader], size: int = 0) -> None:
        if data[0].code not in _INTERIM:
            super().feed_data(data, size)
            return
        self._interim += 1
        if self._interim > _MAX_INTERIM and self.transport is not None:
            self.set_exception(HttpProcessingError(message="too many interim responses"))
            self.transport.close()

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Of bytes that are not HTTP, aiohttp tells only who waits for a head: who waits for the body must know too."""
        super().set_exception(exc, *cause)
        body = self._payload
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError("the body is not valid HTTP"))


class ConnectionPool(aiohttp.TCPConnector):
    """A pool of such connections, which gives out none on which the upstream has sent something unasked: aiohttp would
    take that (a server's 408 before it closes, say) for the response to the next request."""

    def __init__(self, *, limit: int, tls: ssl.SSLContext | None) -> None:
        super().__init__(limit=limit, keepalive_timeout=_KEEPALIVE_S, ssl=tls or True)
        self._factory = cast("partial[ResponseHandler]", partial(UpstreamConnection, asyncio.get_running_loop()))

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        for _ in range(_MAX_SPOILT):
            connection = await super().connect(req, traces, timeout)
            if connection.protocol is not None and not connection.protocol.should_close:
                return connection
            connection.close()
        raise aiohttp.ServerDisconnectedError("the upstream sends before it is asked")
