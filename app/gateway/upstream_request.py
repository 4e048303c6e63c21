"""What goes upstream for a call."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from app.gateway.types import Call, Resumable
from app.protocols.common.stream_events import Turn
from app.upstream import Form, UpstreamRequest
from judges.types import Chunk


def upstream_request(call: Call, kept: Sequence[Chunk], turn: Turn | None = None) -> UpstreamRequest:
    """The request for ``call`` with the documents that were ``kept``; with ``turn``, to go on with its reply."""
    return UpstreamRequest(
        method="POST",
        path=call.dialect.path,
        query=call.query,
        headers=call.headers,
        # A stream that is compressed may be held back by the compressor.
        accept_encoding="identity" if call.intake.stream else "gzip, deflate",
        content=_content(call, kept, turn),
        model=call.intake.model,
        repeatable=True,
    )


def _content(call: Call, kept: Sequence[Chunk], turn: Turn | None) -> Callable[[Form], bytes]:
    """Makes the body that goes upstream: the client's own bytes wherever nothing in them has to change."""
    intake = call.intake
    written = kept[: len(kept) - intake.standing]  # what stands in the prompt is not written a second time
    injects = bool(written) and intake.options.inject != "none"
    body = call.dialect.inject(intake.body, written, where=intake.options.inject) if injects else intake.body
    if turn is not None and isinstance(call.dialect, Resumable):
        body = call.dialect.resume(body, turn)

    def content(form: Form) -> bytes:
        changes = {"model": form.model} if form.renamed else {}
        # Where the gateway writes the prompt, it gives the documents there, and none that was dropped.
        if form.documents and intake.documents is not None and intake.options.inject == "none":
            changes["documents"] = intake.documents
        if intake.raw is not None and body is intake.body and not changes:
            return intake.raw
        return _encode_body({**body, **changes})

    return content


def _encode_body(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except (TypeError, orjson.JSONEncodeError):  # an integer beyond 64 bits
        import json

        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
