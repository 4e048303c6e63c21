"""``POST /v1/responses``; what else there is under that path is passed through."""

from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from app.api.governed import govern
from app.gateway.types import ProtocolAdapter
from app.protocols.documents import Limits, ParsedRequest
from app.protocols.openai_responses import ResponsesAdapter
from app.protocols.openai_responses.request import read_responses

router = APIRouter(tags=["responses"])


@router.post("/v1/responses")
@router.post("/v1/responses/", include_in_schema=False)
async def create_response(request: Request) -> Response:
    """OpenAI's Responses API, with ``documents`` and ``grounding`` beside its own fields."""
    return await govern(request, _read)


def _read(raw: bytes, headers: Mapping[str, str], limits: Limits) -> tuple[ProtocolAdapter, ParsedRequest]:
    return ResponsesAdapter(), read_responses(raw, headers, limits)
