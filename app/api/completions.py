"""``POST /v1/completions``."""

from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from app.api.governed import govern
from app.gateway.types import ProtocolAdapter
from app.protocols.documents import Limits, ParsedRequest
from app.protocols.openai_completions.adapter import CompletionsAdapter
from app.protocols.openai_completions.request import read_text

router = APIRouter(tags=["completions"])


@router.post("/v1/completions")
@router.post("/v1/completions/", include_in_schema=False)
async def create_completion(request: Request) -> Response:
    """OpenAI's plain completions, with ``documents`` and ``grounding`` beside its own fields."""
    return await govern(request, _read)


def _read(raw: bytes, headers: Mapping[str, str], limits: Limits) -> tuple[ProtocolAdapter, ParsedRequest]:
    parsed = read_text(raw, headers, limits)
    return CompletionsAdapter(parsed.body), parsed
