"""The upstream client: HTTP/1.1 over connections of our own, with httpx's names for what goes wrong.

The request's target goes out byte by byte as it came, the wait for the first byte and the silence between bytes are
timed apart, and closing a response that was not read to its end closes its connection at once.
"""

import ssl
from collections.abc import AsyncIterable
from typing import Protocol

import httpx

from app.config import Timeouts
from app.upstream.http.address import Address, Origin
from app.upstream.http.connect import dial, trust
from app.upstream.http.connection import Connection, Owner
from app.upstream.http.pool import Pool
from app.upstream.http.request_head import written
from app.upstream.http.response import Headers, Response

_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Sent twice they do what they do once (RFC 9110, section 9.2.2)."""


class Sender(Protocol):
    """Something that sends requests."""

    async def send(
        self, method: str, address: Address, headers: Headers, content: bytes | AsyncIterable[bytes]
    ) -> Response:
        """Return once a response's head is here. Raises httpx.TransportError; cancelling it ends the connection."""
        ...

    async def aclose(self) -> None: ...


class Transport:
    """Pools of connections, one for each server. ``connections`` is the limit of each."""

    def __init__(self, *, timeouts: Timeouts, connections: int = 1_000, tls: ssl.SSLContext | None = None) -> None:
        self._timeouts, self._connections = timeouts, connections
        self._tls = tls or trust()
        self._pools: dict[Origin, Pool] = {}

    async def send(
        self, method: str, address: Address, headers: Headers, content: bytes | AsyncIterable[bytes]
    ) -> Response:
        head, body = written(method, address, headers, content)
        pool = self._pools.get(address.origin) or self._pool(address.origin)
        while True:
            connection = pool.idle() or await pool.connect()
            reused = connection.used
            try:
                return await connection.ask(head, body, bodiless=method == "HEAD")
            except httpx.ReadError:
                # The upstream may have closed it just before: then there is nothing that it has done.
                if not (reused and connection.is_unanswered and method in _IDEMPOTENT and isinstance(body, bytes)):
                    raise

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    def _pool(self, origin: Origin) -> Pool:
        timeouts = self._timeouts

        async def connect(owner: Owner) -> Connection:
            return await dial(
                origin, lambda: Connection(owner, timeouts=timeouts), timeout=timeouts.connect, tls=self._tls
            )

        # Made inside the running loop, on first use.
        pool = Pool(connect, limit=self._connections, patience=timeouts.connect + timeouts.first_byte)
        self._pools[origin] = pool
        return pool
