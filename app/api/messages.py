"""``POST /v1/messages``."""

from fastapi import APIRouter, Request, Response

from app.api.respond import answer, read_body
from app.call import Call
from app.dialects.messages import MessagesDialect
from app.intake import Limits
from app.intake.messages import read_messages
from app.resources import Resources

PATH = "/v1/messages"

router = APIRouter(tags=["messages"])


@router.post(PATH)
@router.post(f"{PATH}/", include_in_schema=False)
async def create_message(request: Request) -> Response:
    """Anthropic's Messages, with ``documents`` and ``grounding`` beside its own fields."""
    resources: Resources = request.state.resources
    settings = resources.settings
    raw = await read_body(request, limit=settings.max_body_bytes)
    read = read_messages(raw, request.headers, Limits.of(settings))
    # The body was decoded on the way in.
    headers = [(name, value) for name, value in request.headers.items() if name != "content-encoding"]
    query = request.scope["query_string"].decode("latin-1")
    call = Call(dialect=MessagesDialect(read), intake=read.intake, headers=headers, query=query, key=request.state.key)
    return await answer(request, resources, call)
