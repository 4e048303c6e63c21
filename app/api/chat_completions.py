"""``POST /v1/chat/completions``."""

from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from app.api.governed import govern
from app.gateway.types import Dialect
from app.protocols.documents import Intake, Limits, read_chat
from app.protocols.openai_chat.adapter import ChatDialect

router = APIRouter(tags=["chat"])
_DIALECT = ChatDialect()


@router.post("/v1/chat/completions")
@router.post("/v1/chat/completions/", include_in_schema=False)
async def create_chat_completion(request: Request) -> Response:
    """OpenAI's Chat Completions, with ``documents`` and ``grounding`` beside its own fields."""
    return await govern(request, _read)


def _read(raw: bytes, headers: Mapping[str, str], limits: Limits) -> tuple[Dialect, Intake]:
    return _DIALECT, read_chat(raw, headers, limits)
