"""The request that goes upstream."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from app.gateway.types import GatewayRequest, ResumableAdapter
from app.protocols.common.stream_events import Continuation
from app.upstream import BodyFormat, UpstreamRequest
from judges.types import Chunk


def upstream_request(
    request: GatewayRequest, kept: Sequence[Chunk], continuation: Continuation | None = None
) -> UpstreamRequest:
    """The upstream request with the documents that were ``kept``; with ``continuation``, to continue the reply."""
    return UpstreamRequest(
        method="POST",
        path=request.adapter.path,
        query=request.query,
        headers=request.headers,
        # A compressor may hold back parts of a stream.
        accept_encoding="identity" if request.parsed.stream else "gzip, deflate",
        content=_content(request, kept, continuation),
        model=request.parsed.model,
        repeatable=True,
    )


def _content(
    request: GatewayRequest, kept: Sequence[Chunk], continuation: Continuation | None
) -> Callable[[BodyFormat], bytes]:
    """Makes the body that goes upstream: the client's own bytes if nothing in them has to change."""
    parsed, adapter = request.parsed, request.adapter
    written = kept[: len(kept) - parsed.standing]  # what is in the prompt is not written a second time
    injects = bool(written) and parsed.options.inject != "none"
    body = adapter.inject(parsed.body, written, where=parsed.options.inject) if injects else parsed.body
    if continuation is not None and isinstance(adapter, ResumableAdapter):
        body = adapter.continuing(body, continuation)

    def content(form: BodyFormat) -> bytes:
        changes = {"model": form.model} if form.renamed else {}
        # If the gateway writes the prompt, it writes the documents there, without those that were dropped.
        if form.documents and parsed.documents is not None and parsed.options.inject == "none":
            changes["documents"] = parsed.documents
        if parsed.raw is not None and body is parsed.body and not changes:
            return parsed.raw
        return _encode_body({**body, **changes})

    return content


def _encode_body(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except (TypeError, orjson.JSONEncodeError):  # an integer beyond 64 bits
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
