"""Between HTTP and the gateway: bodies in, replies out, and clients that go away."""

import zlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from app.api.client_disconnect import ClientGoneError, Presence
from app.api.streaming_response import Stream
from app.errors import InvalidRequestError
from app.gateway.types import GatewayRequest, ProtocolAdapter
from app.protocols.documents import Limits, ParsedRequest
from app.resources import Resources
from app.upstream import Headers

T = TypeVar("T")

_TOO_LARGE = 413
_UNSUPPORTED = 415
_WITHOUT_BODY = (204, 304)
CLIENT_GONE = 499
_INFLATE = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


Read = Callable[[bytes, Mapping[str, str], Limits], tuple[ProtocolAdapter, ParsedRequest]]
"""Reads a request: its adapter, and what its body and headers say. Header names are in lower case."""


async def govern(request: Request, read: Read) -> Response:
    """Read a governed call and answer it. Raises GatewayError."""
    resources: Resources = request.state.resources
    settings = resources.settings
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.scope["headers"]]
    first = dict(reversed(headers))
    raw = await read_body(request, headers=first, limit=settings.max_body_bytes)
    if "content-encoding" in first:
        # The body was decoded on the way in.
        headers = [item for item in headers if item[0] != "content-encoding"]
    adapter, parsed = read(raw, first, Limits.of(settings))
    query = request.scope["query_string"].decode("latin-1")
    call = GatewayRequest(adapter=adapter, parsed=parsed, headers=headers, query=query, key=request.state.key)
    return await _answer(request, resources, call)


async def _answer(request: Request, resources: Resources, call: GatewayRequest) -> Response:
    """Have the gateway answer, for as long as the client is there."""
    try:
        reply = await while_connected(request, resources.gateway.respond(call))
    except ClientGoneError:
        return Response(status_code=CLIENT_GONE)
    if reply.stream is None:
        return Whole(reply.body, reply.headers, status=reply.status)
    settings = resources.settings
    return Stream(
        reply.stream,
        reply.headers,
        status=reply.status,
        aclose=reply.stream.aclose,
        send_timeout_s=settings.send_timeout_s,
        pulse_s=settings.heartbeat_s if reply.held else None,
        within=resources.metrics.open_stream,
    )


async def read_body(request: Request, *, limit: int, headers: Mapping[str, str] | None = None) -> bytes:
    """The request's body, decoded. Raises InvalidRequestError where it is too large or oddly encoded.

    ``headers``: those of the request, where they have been read already.
    """
    headers = request.headers if headers is None else headers
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", *_INFLATE):
        raise InvalidRequestError(
            f"Content-Encoding {encoding!r} is not supported; use gzip, deflate or none.", status=_UNSUPPORTED
        )
    inflater = zlib.decompressobj(_INFLATE[encoding]) if encoding in _INFLATE else None
    body = bytearray()
    try:
        async for data in request.stream():
            # One byte over the limit is enough to know; a bomb is never unpacked.
            body += inflater.decompress(data, limit + 1 - len(body)) if inflater else data
            if len(body) > limit:
                raise _too_large(limit)
    except zlib.error:
        raise InvalidRequestError(f"The request body is not valid {encoding}.") from None
    if inflater is not None and not inflater.eof:
        raise InvalidRequestError(f"The request body is not valid {encoding}: it ends too early.")
    return bytes(body)


def _too_large(limit: int) -> InvalidRequestError:
    return InvalidRequestError(f"The request body exceeds {limit} bytes.", param="body", status=_TOO_LARGE)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, unless the client goes away first; then it is cancelled. The body must be read.

    Raises ClientGoneError.
    """
    async with Presence(request.receive):
        return await work


class Whole(Response):
    """A reply that is there as a whole, with its headers and no others, but for its length."""

    def __init__(self, body: bytes, headers: Headers, *, status: int) -> None:
        self.body, self.status_code, self.background = body, status, None
        self.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        if status not in _WITHOUT_BODY:
            self.raw_headers.append((b"content-length", b"%d" % len(body)))
