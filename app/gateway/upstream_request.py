"""What goes upstream for a call."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from app.gateway.types import GatewayRequest, ResumableAdapter
from app.protocols.common.stream_events import Continuation
from app.upstream import Form, UpstreamRequest
from judges.types import Chunk


def upstream_request(call: GatewayRequest, kept: Sequence[Chunk], turn: Continuation | None = None) -> UpstreamRequest:
    """The request for ``call`` with the documents that were ``kept``; with ``turn``, to go on with its reply."""
    return UpstreamRequest(
        method="POST",
        path=call.adapter.path,
        query=call.query,
        headers=call.headers,
        # A stream that is compressed may be held back by the compressor.
        accept_encoding="identity" if call.parsed.stream else "gzip, deflate",
        content=_content(call, kept, turn),
        model=call.parsed.model,
        repeatable=True,
    )


def _content(call: GatewayRequest, kept: Sequence[Chunk], turn: Continuation | None) -> Callable[[Form], bytes]:
    """Makes the body that goes upstream: the client's own bytes wherever nothing in them has to change."""
    parsed = call.parsed
    written = kept[: len(kept) - parsed.standing]  # what stands in the prompt is not written a second time
    injects = bool(written) and parsed.options.inject != "none"
    body = call.adapter.inject(parsed.body, written, where=parsed.options.inject) if injects else parsed.body
    if turn is not None and isinstance(call.adapter, ResumableAdapter):
        body = call.adapter.resume(body, turn)

    def content(form: Form) -> bytes:
        changes = {"model": form.model} if form.renamed else {}
        # Where the gateway writes the prompt, it gives the documents there, and none that was dropped.
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
        import json

        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
