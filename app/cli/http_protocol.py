"""uvicorn's HTTP/1.1 protocol with additional limits on the size of the request head, the time it may take to arrive,
and the number of connections."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.settings import Settings

_log = structlog.stdlib.get_logger(__name__)

MAX_HEAD_BYTES = 64 * 1024
HEAD_TIMEOUT_S = 10.0
_LINGER_S = 1.0
"""How long to read and discard the rest of a rejected request, so that the client can read the response."""
_CONTENT = {
    408: "The request head did not arrive in time.",
    431: f"The request head exceeds {MAX_HEAD_BYTES} bytes.",
    503: "Too many connections. Try again later.",
}


@dataclass(slots=True, kw_only=True)
class ConnectionLimits:
    """The connection limits of a process. ``open`` counts the open connections by address."""

    total: int
    per_address: int
    open: Counter[str] = field(default_factory=Counter)


class LimitedHttpProtocol(HttpToolsProtocol):
    """One connection. A request whose head arrives in one piece needs no timer and no copy."""

    def __init__(self, *args: Any, limits: ConnectionLimits, head_timeout_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits, self._head_timeout_s = limits, head_timeout_s
        self._in_head = False
        """Whether only a part of a request head has arrived."""
        self._begun = False
        """Whether the incomplete request head began in the current chunk of data."""
        self._head_bytes = self._received = self._requests = 0
        self._too_large = self._refused = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # same as in uvicorn
        super().connection_made(transport)
        limits, address = self._limits, self.client[0] if self.client else ""
        limits.open[address] += 1
        if len(self.connections) > limits.total or (address and limits.open[address] > limits.per_address):
            _log.warning("connection_refused", client=address, connections=len(self.connections))
            self._refuse(503)
        else:
            self._timer = self.loop.call_later(self._head_timeout_s, self._time_out)

    def connection_lost(self, exc: Exception | None) -> None:
        address = self.client[0] if self.client else ""
        self._limits.open[address] -= 1
        if not self._limits.open[address]:
            del self._limits.open[address]
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        first = not self._requests
        self._begun = False
        super().data_received(data)
        if not self._in_head or self._refused:
            return
        if first or not self._begun:  # otherwise, part of the data belongs to the previous request
            self._received += len(data)
        if self._received > MAX_HEAD_BYTES:
            self._refuse(431)
        elif self._timer is None:
            self._timer = self.loop.call_later(self._head_timeout_s, self._time_out)

    # Parser callbacks

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._begun = True
        self._requests += 1
        self._head_bytes = self._received = 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + len(b": \r\n"))
        if self._in_head:  # otherwise it is a trailer, not a header
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        self._stop_timer()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if self._too_large:
            self._refuse(431)
        else:
            super().send_400_response(msg)

    def _count(self, length: int) -> None:
        self._head_bytes += length
        if self._head_bytes > MAX_HEAD_BYTES:
            self._too_large = True
            raise ValueError("the request head is too large")  # stops the parser

    def _time_out(self) -> None:
        self._timer = None
        if self._in_head:
            self._refuse(408)
        elif not self._requests:  # the client sent nothing
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: int) -> None:
        """Respond with ``status`` and close the connection, without parsing more HTTP."""
        self._refused = True
        self._stop_timer()
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # a reply to the previous request is in progress
            return
        error = {"message": _CONTENT[status], "type": "invalid_request_error", "param": None, "code": None}
        body = orjson.dumps({"error": error})
        self.transport.write(
            STATUS_LINE[status]
            + b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            + body
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(_LINGER_S, self.transport.close)


def http_protocol(settings: Settings, *, head_timeout_s: float = HEAD_TIMEOUT_S) -> Any:
    """Return the factory to pass to uvicorn as ``http``. It creates a protocol for each connection."""
    limits = ConnectionLimits(total=settings.max_connections, per_address=settings.max_connections_per_address)
    return partial(LimitedHttpProtocol, limits=limits, head_timeout_s=head_timeout_s)
