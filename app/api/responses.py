"""``POST /v1/responses``; what else there is under that path is passed through."""

from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from app.api.respond import govern
from app.call import Dialect
from app.dialects.responses import ResponsesDialect
from app.intake import Intake, Limits
from app.intake.responses import read_responses

router = APIRouter(tags=["responses"])


@router.post("/v1/responses")
@router.post("/v1/responses/", include_in_schema=False)
async def create_response(request: Request) -> Response:
    """OpenAI's Responses API, with ``documents`` and ``grounding`` beside its own fields."""
    return await govern(request, _read)


def _read(raw: bytes, headers: Mapping[str, str], limits: Limits) -> tuple[Dialect, Intake]:
    return ResponsesDialect(), read_responses(raw, headers, limits)
