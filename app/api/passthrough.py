"""Every ``/v1`` path that is not governed: refused unless it is open, and then passed through, bytes unchanged."""

import httpx
import orjson
from fastapi import APIRouter, Request, Response

from app.api.request_body import read_body
from app.api.streaming_response import StreamedResponse
from app.auth import GatewayKey
from app.resources import Resources
from app.upstream import Content, RawBody, UpstreamRequest, returned_headers

router = APIRouter(include_in_schema=False)
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LEAVING_NOTHING = frozenset({"/embeddings", "/moderations"})
"""Sending these twice does no harm."""
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@router.api_route("/v1/{path:path}", methods=_METHODS)
async def pass_through(request: Request, path: str) -> Response:
    """Forward the request and the response unchanged."""
    resources: Resources = request.state.resources
    raw_path = request.scope.get("raw_path") or request.url.path.encode()
    target = raw_path.decode("latin-1").removeprefix("/v1")
    resources.open_paths.check(request.method, target)
    key: GatewayKey | None = request.state.key
    limited = key is not None and bool(key.models)
    model, content = await _content(request, resources, whole=limited)
    if key is not None and not (model is None and request.method in _SAFE):
        key.check_model(model)
    sent = await resources.upstream.send(
        UpstreamRequest(
            method=request.method,
            path=target,
            query=request.scope["query_string"].decode("latin-1"),
            headers=[item for item in request.headers.items() if not (limited and item[0] == "content-encoding")],
            accept_encoding=request.headers.get("accept-encoding", "identity"),
            content=content,
            model=model,
            repeatable=request.method in _SAFE or target in _LEAVING_NOTHING,
        )
    )
    response = sent.response
    return StreamedResponse(
        RawBody(response),
        [*returned_headers(response, read=False), *_length(response)],
        status=response.status_code,
        aclose=response.aclose,
        send_timeout_s=resources.settings.send_timeout_s,
    )


async def _content(request: Request, resources: Resources, *, whole: bool) -> tuple[str | None, Content]:
    """The body, and its model if that matters. A JSON body is read only for its model.

    ``whole``: the model decides whether the request is allowed, so every body is read, and a JSON body is serialized
    again, so that the upstream reads the same model.
    """
    if not _has_body(request):
        return None, b""
    if not whole and not (resources.upstream.by_model and _is_plain_json(request)):
        return None, request.stream()
    raw = await read_body(request, limit=resources.settings.max_body_bytes)
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None, raw
    model = body.get("model") if isinstance(body, dict) else None
    if not isinstance(model, str):
        return None, raw
    return model, lambda wanted: orjson.dumps({**body, "model": wanted.model}) if wanted.renamed or whole else raw


def _is_plain_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" and "content-encoding" not in request.headers


def _has_body(request: Request) -> bool:
    return "content-length" in request.headers or "transfer-encoding" in request.headers


def _length(response: httpx.Response) -> list[tuple[str, str]]:
    length = response.headers.get("content-length")
    return [("content-length", length)] if length is not None else []
