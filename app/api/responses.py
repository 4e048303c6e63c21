"""``POST /v1/responses``; what else there is under that path is passed through."""

from fastapi import APIRouter, Request, Response

from app.api.respond import answer, read_body
from app.call import Call
from app.dialects.responses import ResponsesDialect
from app.intake import Limits
from app.intake.responses import read_responses
from app.resources import Resources

router = APIRouter(tags=["responses"])


@router.post("/v1/responses")
@router.post("/v1/responses/", include_in_schema=False)
async def create_response(request: Request) -> Response:
    """OpenAI's Responses API, with ``documents`` and ``grounding`` beside its own fields."""
    resources: Resources = request.state.resources
    settings = resources.settings
    raw = await read_body(request, limit=settings.max_body_bytes)
    intake = read_responses(raw, request.headers, Limits.of(settings))
    # The body was decoded on the way in.
    headers = [(name, value) for name, value in request.headers.items() if name != "content-encoding"]
    query = request.scope["query_string"].decode("latin-1")
    call = Call(dialect=ResponsesDialect(), intake=intake, headers=headers, query=query, key=request.state.key)
    return await answer(request, resources, call)
