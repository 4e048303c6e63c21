"""``POST /v1/chat/completions``."""

from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from app.api.governed import govern
from app.gateway.types import ProtocolAdapter
from app.protocols.documents import Limits, ParsedRequest, read_chat
from app.protocols.openai_chat.adapter import ChatAdapter

router = APIRouter(tags=["chat"])
_ADAPTER = ChatAdapter()


@router.post("/v1/chat/completions")
@router.post("/v1/chat/completions/", include_in_schema=False)
async def create_chat_completion(request: Request) -> Response:
    """OpenAI's Chat Completions, with ``documents`` and ``grounding`` beside its own fields."""
    return await govern(request, _read)


def _read(raw: bytes, headers: Mapping[str, str], limits: Limits) -> tuple[ProtocolAdapter, ParsedRequest]:
    return _ADAPTER, read_chat(raw, headers, limits)
