"""Between Starlette and the gateway: bodies in, replies out, and clients that go away."""

import asyncio
import zlib
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import anyio
import structlog
from fastapi import Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from app.call import Call, ReplyStream
from app.errors import InvalidRequestError
from app.resources import Resources
from app.tasks import TaskScope
from app.upstream import Headers

T = TypeVar("T")

_log = structlog.stdlib.get_logger(__name__)

_TOO_LARGE = 413
_UNSUPPORTED = 415
CLIENT_GONE = 499
_INFLATE = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


async def answer(request: Request, resources: Resources, call: Call) -> Response:
    """Have the gateway answer, for as long as the client is there."""
    try:
        reply = await while_connected(request, resources.gateway.respond(call))
    except ClientGoneError:
        return Response(status_code=CLIENT_GONE)
    if reply.stream is None:
        return with_headers(Response(content=reply.body, status_code=reply.status), reply.headers)
    if reply.held:
        return with_headers(_HeldStream(reply.stream, reply.status, resources), reply.headers)
    plain = OwnedStream(
        reply.stream,
        status_code=reply.status,
        aclose=reply.stream.aclose,
        send_timeout_s=resources.settings.send_timeout_s,
        within=resources.metrics.open_stream,
    )
    return with_headers(plain, reply.headers)


async def read_body(request: Request, *, limit: int) -> bytes:
    """The request's body, decoded. Raises InvalidRequestError where it is too large or oddly encoded."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
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


class ClientGoneError(Exception):
    """The client left before it was answered."""


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, unless the client goes away first; then it is cancelled. The body must be read.

    Raises ClientGoneError.
    """
    tasks = TaskScope()
    working = tasks.start(work)
    gone = tasks.start(_disconnected(request))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
    finally:
        await tasks.aclose()
    raise ClientGoneError


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def with_headers(response: Response, headers: Headers) -> Response:
    """Set the upstream's headers, repeated ones included, in place of those that the response made up."""
    ours = {name for name, _ in headers}
    kept = [(name, value) for name, value in response.raw_headers if name.decode("latin-1") not in ours]
    response.raw_headers = kept + [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return response


class _Comment(ServerSentEvent):
    """A sign of life: a comment line without a blank line, since that would end an event which is not there."""

    def encode(self) -> bytes:
        return b": waiting\n"


class _HeldStream(EventSourceResponse):
    """A stream whose text may be held back. It is closed whatever the end."""

    def __init__(self, stream: ReplyStream, status: int, resources: Resources) -> None:
        super().__init__(
            stream,
            status_code=status,
            ping=resources.settings.heartbeat_s,
            ping_message_factory=_Comment,
            send_timeout=resources.settings.send_timeout_s,
        )
        self._stream, self._resources = stream, resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._resources.metrics.open_stream():
            try:
                await super().__call__(scope, receive, send)
            except SendTimeoutError:
                _log.warning("client_dropped", reason="it took no byte for too long")
            finally:
                await self._stream.aclose()


class OwnedStream(StreamingResponse):
    """A stream that passes as it comes, nothing of ours put in between. ``aclose`` is called whatever the end."""

    def __init__(
        self,
        content: AsyncIterable[bytes],
        *,
        status_code: int,
        aclose: Callable[[], Awaitable[None]],
        send_timeout_s: float,
        within: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(content, status_code=status_code)
        self._aclose, self._send_timeout_s, self._within = aclose, send_timeout_s, within

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def timely(message: Message) -> None:
            with anyio.fail_after(self._send_timeout_s):
                await send(message)

        with self._within():
            try:
                await super().__call__(scope, receive, timely)
            except TimeoutError:
                _log.warning("client_dropped", reason="it took no byte for too long")
            finally:
                with anyio.CancelScope(shield=True):
                    await self._aclose()
