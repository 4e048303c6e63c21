"""Builds the upstream request and reads the reply."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import httpx
import orjson

from app.errors import UpstreamConnectError
from app.events.recorder import TokenUsage
from app.gateway.request_lifetime import RequestLifetime
from app.gateway.retrieval import Retrieval
from app.gateway.types import GatewayRequest, ResumableAdapter
from app.protocols.common.known_fields import text_length
from app.protocols.common.stream_events import Continuation
from app.reply.reader_output import Mode
from app.reply.regeneration import FurtherReply, Regeneration
from app.upstream import BodyFormat, UpstreamClient, UpstreamRequest, decoded
from judges.types import Chunk


def upstream_request(
    request: GatewayRequest,
    kept: Sequence[Chunk],
    continuation: Continuation | None = None,
    *,
    usage: TokenUsage | None = None,
) -> UpstreamRequest:
    """Build the upstream request with the ``kept`` documents. With ``continuation``, the request asks the upstream to
    continue its reply. When the request is sent, the length of the prompt is stored in ``usage``."""
    return UpstreamRequest(
        method="POST",
        path=request.adapter.path,
        query=request.query,
        headers=request.headers,
        # Compression at the upstream could delay parts of a stream.
        accept_encoding="identity" if request.parsed.stream else "gzip, deflate",
        content=_content(request, kept, continuation, usage),
        model=request.parsed.model,
        repeatable=True,
    )


def _content(
    request: GatewayRequest, kept: Sequence[Chunk], continuation: Continuation | None, usage: TokenUsage | None
) -> Callable[[BodyFormat], bytes]:
    """Return a function that builds the body to send upstream. If nothing has to change, the body is sent exactly as
    the client sent it."""
    parsed, adapter = request.parsed, request.adapter
    written = kept[: len(kept) - parsed.standing]  # documents in the prompt are not written a second time
    injects = bool(written) and parsed.options.inject != "none"
    body = adapter.inject(parsed.body, written, where=parsed.options.inject) if injects else parsed.body
    if continuation is not None and isinstance(adapter, ResumableAdapter):
        body = adapter.continuing(body, continuation)

    def content(form: BodyFormat) -> bytes:
        changes = {"model": form.model} if form.renamed else {}
        # The ``documents`` field is sent only if the gateway doesn't write the documents into the prompt.
        if form.documents and parsed.documents is not None and parsed.options.inject == "none":
            changes["documents"] = parsed.documents
        sent = {**body, **changes}
        if usage is not None:
            usage.prompt_chars = partial(text_length, sent)
        if parsed.raw is not None and body is parsed.body and not changes:
            return parsed.raw
        return _encode_body(sent)

    return content


def _encode_body(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except (TypeError, orjson.JSONEncodeError):  # an integer beyond 64 bits
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def regeneration(
    retrieval: Retrieval, scope: RequestLifetime, upstream: UpstreamClient, *, max_bytes: int
) -> Regeneration | None:
    """Return the object that asks the upstream to continue its reply, or None if no policy requires it."""
    request, limit = retrieval.forwarded, retrieval.admitted.policies.reply_settings.max_regenerations
    adapter, parsed = request.adapter, request.parsed
    if not limit:
        return None
    if not isinstance(adapter, ResumableAdapter):
        return Regeneration.unavailable_for("api")
    if retrieval.mode is Mode.LIVE or parsed.is_json:
        return Regeneration.unavailable_for("json" if parsed.is_json else "live")

    async def send(continuation: Continuation) -> FurtherReply | None:
        sent = await upstream.send(upstream_request(request, retrieval.kept, continuation))
        response = sent.response
        scope.hold(response)
        if not response.is_success:
            return None
        body = reply_bytes(response, max_bytes)
        events = adapter.decode_continued(body, content_type(response), continuation.frame)
        return FurtherReply(events=events, end_earlier=lambda: scope.end_calls(leave=1))

    return Regeneration(limit=limit, unavailable=adapter.cannot_continue(parsed.body), send=send)


def reply_bytes(response: httpx.Response, max_bytes: int) -> AsyncIterator[bytes]:
    """Yield the bytes of a reply. A stream is read as it arrives, and a whole reply up to the limit."""
    data = decoded(response)
    return in_one_piece(max_bytes, data) if is_json(response) else data


class OneBody(httpx.AsyncByteStream):
    """A body that is already complete."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body


def content_type(response: httpx.Response) -> str:
    kind: str = response.headers.get("content-type", "").casefold()
    return kind


def is_json(response: httpx.Response) -> bool:
    return "event-stream" not in content_type(response)


async def whole(limit: int, data: AsyncIterator[bytes]) -> bytes:
    """Return all of ``data``. Raises UpstreamConnectError."""
    pieces: list[bytes] = []
    length = 0
    async for piece in data:
        length += len(piece)
        if length > limit:
            raise UpstreamConnectError(f"The upstream's reply exceeds the limit of {limit} bytes.")
        pieces.append(piece)
    return b"".join(pieces)


async def in_one_piece(limit: int, data: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield await whole(limit, data)


async def once(body: bytes) -> AsyncIterator[bytes]:
    yield body
