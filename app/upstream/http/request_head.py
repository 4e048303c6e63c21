"""A request as it stands on the wire: its head, and the frames of a body that is not here yet."""

from collections.abc import AsyncGenerator, AsyncIterable

import httpx

from app.upstream.http.address import Address
from app.upstream.http.response import Headers

_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Without a body they need no length, and some servers frown upon one."""


def written(
    method: str, address: Address, headers: Headers, content: bytes | AsyncIterable[bytes]
) -> tuple[bytes, bytes | AsyncGenerator[bytes]]:
    """Head and body. What comes piece by piece is chunked, or has the length that the headers give it.

    ``host`` is made up unless it is among the headers; of the framing, only that length is taken from them.

    Raises httpx.LocalProtocolError for what would not be one request; so does the body where its length is wrong.
    """
    lines = []
    named, given = False, None
    for name, value in headers:
        if name == "content-length":
            given = value
        elif name != "transfer-encoding":
            named = named or name == "host"
            lines.append(f"{name}: {value}\r\n")
    if not named:
        lines.append(f"host: {address.host}\r\n")
    body: bytes | AsyncGenerator[bytes]
    if isinstance(content, bytes):
        body = content
        if content or method not in _BODILESS:
            lines.append(f"content-length: {len(content)}\r\n")
    elif given is None:
        body = _chunked(content)
        lines.append("transfer-encoding: chunked\r\n")
    else:
        body = _measured(content, _length(given))
        lines.append(f"content-length: {given}\r\n")
    block = "".join(lines)
    if not (method.isascii() and method.isalpha()):
        raise httpx.LocalProtocolError("the method is no word")
    if block.count("\n") != len(lines) or block.count("\r") != len(lines) or "\0" in block:
        raise httpx.LocalProtocolError("a header holds the end of a line, or a null byte")
    try:
        return f"{method} {address.target} HTTP/1.1\r\n{block}\r\n".encode("latin-1"), body
    except UnicodeEncodeError:
        raise httpx.LocalProtocolError("a header holds characters that are no bytes") from None


def _length(given: str) -> int:
    if not (given.isascii() and given.isdecimal()):
        raise httpx.LocalProtocolError("the request's content-length is no number")
    return int(given)


async def _chunked(content: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    async for piece in content:
        if piece:  # an empty chunk would be the last
            yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


async def _measured(content: AsyncIterable[bytes], length: int) -> AsyncGenerator[bytes]:
    left = length
    async for piece in content:
        left -= len(piece)
        if left < 0:
            break
        if piece:
            yield piece
    if left:
        raise httpx.LocalProtocolError("the request's body is not as long as its content-length says")
