"""``POST /v1/messages``."""

from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from app.api.governed import govern
from app.gateway.types import ProtocolAdapter
from app.protocols.anthropic_messages import MessagesAdapter
from app.protocols.anthropic_messages.request import read_messages
from app.protocols.documents import Limits, ParsedRequest

PATH = "/v1/messages"

router = APIRouter(tags=["messages"])


@router.post(PATH)
@router.post(f"{PATH}/", include_in_schema=False)
async def create_message(request: Request) -> Response:
    """Anthropic's Messages, with ``documents`` and ``grounding`` beside its own fields."""
    return await govern(request, _read)


def _read(raw: bytes, headers: Mapping[str, str], limits: Limits) -> tuple[ProtocolAdapter, ParsedRequest]:
    read = read_messages(raw, headers, limits)
    return MessagesAdapter(read), read.parsed
