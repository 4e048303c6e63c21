"""``POST /v1/completions``."""

from fastapi import APIRouter, Request, Response

from app.api.respond import answer, read_body
from app.call import Call
from app.dialects.text import TextDialect
from app.intake import Limits
from app.intake.text import read_text
from app.resources import Resources

router = APIRouter(tags=["completions"])


@router.post("/v1/completions")
@router.post("/v1/completions/", include_in_schema=False)
async def create_completion(request: Request) -> Response:
    """OpenAI's plain completions, with ``documents`` and ``grounding`` beside its own fields."""
    resources: Resources = request.state.resources
    settings = resources.settings
    raw = await read_body(request, limit=settings.max_body_bytes)
    intake = read_text(raw, request.headers, Limits.of(settings))
    # The body was decoded on the way in.
    headers = [(name, value) for name, value in request.headers.items() if name != "content-encoding"]
    query = request.scope["query_string"].decode("latin-1")
    call = Call(dialect=TextDialect(intake.body), intake=intake, headers=headers, query=query, key=request.state.key)
    return await answer(request, resources, call)
