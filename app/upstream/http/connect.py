"""How a connection comes about: the first of a name's addresses that answers, and TLS where the URL says so."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, zip_longest
from typing import Any, TypeVar

import httpx

from app.upstream.http.address import Origin

_HEAD_START_S = 0.25
"""What an address has before the next is tried beside it (RFC 8305 recommends it)."""

_P = TypeVar("_P", bound=asyncio.BaseProtocol)
_Found = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]


@cache
def trust() -> ssl.SSLContext:
    """Certificates that the system trusts, or those of ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``; for HTTP/1.1 alone."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


async def dial(origin: Origin, make: Callable[[], _P], *, timeout: float, tls: ssl.SSLContext) -> _P:
    """A connection to ``origin``, its protocol made by ``make``, in ``timeout`` seconds with all that belongs to it.

    Raises httpx.ConnectError, whose message is for an operator, or httpx.ConnectTimeout.
    """
    try:
        async with asyncio.timeout(timeout):
            opened = await _connected(origin)
            try:
                return await _spoken(origin, make, opened, timeout=timeout, tls=tls)
            except BaseException:
                # It is a transport's by now, which closes it: a number that is free again would soon be another's.
                with suppress(OSError):
                    opened.shutdown(socket.SHUT_RDWR)
                raise
    except TimeoutError:
        raise httpx.ConnectTimeout(f"{origin.host}:{origin.port}") from None
    except (OSError, UnicodeError) as error:
        raise httpx.ConnectError(f"Connect call failed: {origin.host}:{origin.port}: {error}") from error


async def _spoken(
    origin: Origin, make: Callable[[], _P], opened: socket.socket, *, timeout: float, tls: ssl.SSLContext
) -> _P:
    loop = asyncio.get_running_loop()
    if origin.tls:
        _, protocol = await loop.create_connection(
            make, sock=opened, ssl=tls, server_hostname=origin.host, ssl_handshake_timeout=timeout
        )
    else:
        _, protocol = await loop.create_connection(make, sock=opened)
    return protocol


async def _connected(origin: Origin) -> socket.socket:
    found = await _resolved(origin)
    return await (_one(found[0]) if len(found) == 1 else first_of(_in_turn(found)))


async def _resolved(origin: Origin) -> Sequence[_Found]:
    return await asyncio.get_running_loop().getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)


def _in_turn(found: Sequence[_Found]) -> list[_Found]:
    """The families by turns, so that one that leads nowhere holds up no more than every second try."""
    first = [address for address in found if address[0] == found[0][0]]
    others = [address for address in found if address[0] != found[0][0]]
    return [address for address in chain.from_iterable(zip_longest(first, others)) if address is not None]


async def first_of(addresses: Sequence[_Found]) -> socket.socket:
    """The first that is connected. Each but the first is tried when one has failed, or has had its head start.

    Raises OSError: that of the first that failed.
    """
    opened: list[socket.socket] = []
    errors: list[OSError] = []

    async def attempt(address: _Found) -> None:
        try:
            opened.append(await _one(address))
        except OSError as error:
            errors.append(error)

    try:
        async with asyncio.TaskGroup() as group:
            tried: set[asyncio.Task[None]] = set()
            for address in addresses:
                tried.add(group.create_task(attempt(address)))
                _, tried = await asyncio.wait(tried, timeout=_HEAD_START_S, return_when=asyncio.FIRST_COMPLETED)
                if opened:
                    break
            while tried and not opened:
                _, tried = await asyncio.wait(tried, return_when=asyncio.FIRST_COMPLETED)
            for task in tried:
                task.cancel()
    except BaseException:
        _close(opened)
        raise
    if not opened:
        raise errors[0]
    _close(opened[1:])
    return opened[0]


async def _one(address: _Found) -> socket.socket:
    family, kind, protocol, _, where = address
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(made, where)
    except BaseException:
        made.close()
        raise
    return made


def _close(sockets: Sequence[socket.socket]) -> None:
    for made in sockets:
        made.close()
