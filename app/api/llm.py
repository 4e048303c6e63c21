"""The four LLM APIs to which policies apply: Chat Completions, Completions, Responses and Messages."""

from collections.abc import Callable, Mapping

from fastapi import APIRouter, Request, Response

from app.api.client_disconnect import CLIENT_CLOSED_REQUEST, ClientGoneError, while_connected
from app.api.request_body import read_body
from app.api.streaming_response import StreamedResponse
from app.gateway.types import GatewayRequest, ProtocolAdapter
from app.protocols.anthropic_messages import MessagesAdapter
from app.protocols.anthropic_messages.request import read_messages
from app.protocols.documents import Limits, ParsedRequest, read_chat
from app.protocols.openai_chat.adapter import ChatAdapter
from app.protocols.openai_completions.adapter import CompletionsAdapter
from app.protocols.openai_completions.request import read_text
from app.protocols.openai_responses import ResponsesAdapter
from app.protocols.openai_responses.request import read_responses
from app.resources import Resources
from app.upstream import Headers

router = APIRouter()
_CHAT = ChatAdapter()
_WITHOUT_BODY = (204, 304)

Reader = Callable[[bytes, Mapping[str, str], Limits], tuple[ProtocolAdapter, ParsedRequest]]
"""Parses a request body and its headers for one API. Header names are in lower case."""


@router.post("/v1/chat/completions", tags=["chat"])
@router.post("/v1/chat/completions/", include_in_schema=False)
async def create_chat_completion(request: Request) -> Response:
    """OpenAI's Chat Completions API, with the additional fields ``documents`` and ``grounding``."""
    return await _respond(request, _read_chat)


@router.post("/v1/completions", tags=["completions"])
@router.post("/v1/completions/", include_in_schema=False)
async def create_completion(request: Request) -> Response:
    """OpenAI's Completions API, with the additional fields ``documents`` and ``grounding``."""
    return await _respond(request, _read_completion)


@router.post("/v1/responses", tags=["responses"])
@router.post("/v1/responses/", include_in_schema=False)
async def create_response(request: Request) -> Response:
    """OpenAI's Responses API, with the additional fields ``documents`` and ``grounding``."""
    return await _respond(request, _read_response)


@router.post("/v1/messages", tags=["messages"])
@router.post("/v1/messages/", include_in_schema=False)
async def create_message(request: Request) -> Response:
    """Anthropic's Messages API, with the additional fields ``documents`` and ``grounding``."""
    return await _respond(request, _read_message)


def _read_chat(raw: bytes, headers: Mapping[str, str], limits: Limits) -> tuple[ProtocolAdapter, ParsedRequest]:
    return _CHAT, read_chat(raw, headers, limits)


def _read_completion(raw: bytes, headers: Mapping[str, str], limits: Limits) -> tuple[ProtocolAdapter, ParsedRequest]:
    parsed = read_text(raw, headers, limits)
    return CompletionsAdapter(parsed.body), parsed


def _read_response(raw: bytes, headers: Mapping[str, str], limits: Limits) -> tuple[ProtocolAdapter, ParsedRequest]:
    return ResponsesAdapter(), read_responses(raw, headers, limits)


def _read_message(raw: bytes, headers: Mapping[str, str], limits: Limits) -> tuple[ProtocolAdapter, ParsedRequest]:
    read = read_messages(raw, headers, limits)
    return MessagesAdapter(read), read.parsed


async def _respond(request: Request, read: Reader) -> Response:
    """Parse a call, run it through the gateway, and return the response. Raises GatewayError."""
    resources: Resources = request.state.resources
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.scope["headers"]]
    first = dict(reversed(headers))
    raw = await read_body(request, headers=first, limit=resources.settings.max_body_bytes)
    if "content-encoding" in first:
        headers = [item for item in headers if item[0] != "content-encoding"]  # the body is already decompressed
    adapter, parsed = read(raw, first, Limits.of(resources.settings))
    query = request.scope["query_string"].decode("latin-1")
    call = GatewayRequest(adapter=adapter, parsed=parsed, headers=headers, query=query, key=request.state.key)
    try:
        reply = await while_connected(request, resources.gateway.respond(call))
    except ClientGoneError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    if reply.stream is None:
        return _WholeResponse(reply.body, reply.headers, status=reply.status)
    return StreamedResponse(
        reply.stream,
        reply.headers,
        status=reply.status,
        aclose=reply.stream.aclose,
        send_timeout_s=resources.settings.send_timeout_s,
        heartbeat_s=resources.settings.heartbeat_s if reply.held else None,
        within=resources.metrics.open_stream,
    )


class _WholeResponse(Response):
    """A complete reply. Its only headers are the given ones and the content length."""

    def __init__(self, body: bytes, headers: Headers, *, status: int) -> None:
        has_body = status not in _WITHOUT_BODY
        self.body, self.status_code, self.background = body if has_body else b"", status, None
        self.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        if has_body:
            self.raw_headers.append((b"content-length", b"%d" % len(body)))
