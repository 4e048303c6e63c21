"""Every ``/v1`` path that is not governed: passed through, bytes unchanged."""

from collections.abc import AsyncIterator

import httpx
from fastapi import APIRouter, Request, Response

from app.api.respond import OwnedStream, with_headers
from app.resources import Resources
from app.upstream import returned_headers, translate

router = APIRouter(include_in_schema=False)
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@router.api_route("/v1/{path:path}", methods=_METHODS)
async def pass_through(request: Request, path: str) -> Response:
    """Forward the request as it is and answer what the upstream answers."""
    resources: Resources = request.state.resources
    raw_path = request.scope.get("raw_path") or request.url.path.encode()
    response = await resources.upstream.send(
        request.method,
        raw_path.decode("ascii").removeprefix("/v1"),
        headers=list(request.headers.items()),
        content=request.stream() if _has_body(request) else b"",
        query=request.scope["query_string"].decode("ascii"),
        accept_encoding=request.headers.get("accept-encoding", "identity"),
    )
    return with_headers(
        OwnedStream(_bytes(response), status_code=response.status_code, aclose=response.aclose),
        [*returned_headers(response, decoded=False), *_length(response)],
    )


def _has_body(request: Request) -> bool:
    return "content-length" in request.headers or "transfer-encoding" in request.headers


def _length(response: httpx.Response) -> list[tuple[str, str]]:
    length = response.headers.get("content-length")
    return [("content-length", length)] if length is not None else []


async def _bytes(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for data in response.aiter_raw():
            yield data
    except httpx.HTTPError as error:
        raise translate(error) from error
