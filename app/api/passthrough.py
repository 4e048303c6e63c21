"""Handles ``/v1`` paths to which policies don't apply. Requests to open paths (see ``app.upstream.open_paths``) are
forwarded. All other requests are rejected. A body is forwarded byte for byte, unless its model is renamed or the
gateway key is limited to certain models or collections."""

from http import HTTPStatus
from typing import Any

import httpx
import orjson
from fastapi import APIRouter, Request, Response

from app.api.passthrough_models import UnreadableFormError, collections_in, is_form, models_in_form, models_in_url
from app.api.request_body import read_body
from app.api.streaming_response import StreamedResponse
from app.auth import GatewayKey
from app.resources import Resources
from app.upstream import Content, RawBody, UpstreamRequest, returned_headers

router = APIRouter(include_in_schema=False)
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LEAVING_NOTHING = frozenset({"/embeddings", "/moderations"})
"""Paths of POST requests without side effects, which can therefore be retried."""
_BODILESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@router.api_route("/v1/{path:path}", methods=_METHODS)
async def pass_through(request: Request, path: str) -> Response:
    """Forward the request and the response."""
    resources: Resources = request.state.resources
    raw_path = request.scope.get("raw_path") or request.url.path.encode()
    target = raw_path.decode("latin-1").removeprefix("/v1")
    resources.open_paths.check(request.method, target)
    query = request.scope["query_string"].decode("latin-1")
    key: GatewayKey | None = request.state.key
    if key is not None and request.method not in _SAFE:
        await resources.budget_guard.admit(key_prefix=key.prefix, agent=None, model=None, counts_tokens=False)
    limited = key is not None and bool(key.models or key.collections)
    if key is not None and limited:
        model, content = await _checked_content(request, resources, key, target, query)
    else:
        model, content = await _content(request, resources)
    sent = await resources.upstream.send(
        UpstreamRequest(
            method=request.method,
            path=target,
            query=query,
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


async def _content(request: Request, resources: Resources) -> tuple[str | None, Content]:
    """Return the request's model, if routing needs it, and its body. A JSON body is parsed only to find or rename
    the model."""
    if not _has_body(request):
        return None, b""
    if not (resources.upstream.by_model and _is_plain_json(request)):
        return None, request.stream()
    raw = await read_body(request, limit=resources.settings.max_body_bytes)
    body = _json_object(raw)
    model = body.get("model")
    if not isinstance(model, str):
        return None, raw
    return model, lambda wanted: orjson.dumps({**body, "model": wanted.model}) if wanted.renamed else raw


async def _checked_content(
    request: Request, resources: Resources, key: GatewayKey, target: str, query: str
) -> tuple[str | None, Content]:
    """Return the request's model and body, after checking that ``key`` allows every model and collection that the
    request names. A JSON body is serialized again, so that the upstream reads the same model that was checked.

    Raises KeyLimitError.
    """
    key.check_stored_documents(target)
    raw = await read_body(request, limit=resources.settings.max_body_bytes) if _has_body(request) else b""
    key.check_query(query)
    key.check_headers(request.headers.items())
    named = list(models_in_url(target, query))
    for name in named:
        key.check_model(name)
    kinds = request.headers.getlist("content-type")
    if any(is_form(kind) for kind in kinds):
        try:
            in_form = models_in_form(kinds[0], raw) if len(kinds) == 1 else []
        except UnreadableFormError:
            in_form = []
        for name in in_form:
            key.check_model(name)
        if not in_form:
            key.check_model(None)
        return None, raw
    body = _json_object(raw)
    for path, collection in collections_in(body):
        key.check_collection(collection, path)
    if "model" in body or not (named or request.method in _SAFE):
        key.check_body(body)
    else:
        key.check_other_models(body)
    if not body:
        return None, raw
    model = body.get("model")
    if not isinstance(model, str):
        return None, orjson.dumps(body)
    return model, lambda wanted: orjson.dumps({**body, "model": wanted.model})


def _json_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in ``raw``, or an empty one if ``raw`` isn't a JSON object."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}


def _is_plain_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" and "content-encoding" not in request.headers


def _has_body(request: Request) -> bool:
    return "content-length" in request.headers or "transfer-encoding" in request.headers


def _length(response: httpx.Response) -> list[tuple[str, str]]:
    """Return the ``Content-Length`` header, if any. A response with a status that allows no body may contain the length
    of another response's body, so its header is left out."""
    length = response.headers.get("content-length")
    return [("content-length", length)] if length is not None and response.status_code not in _BODILESS else []
