"""``POST /v1/grounding/check``."""

import orjson
from fastapi import APIRouter, Request, Response

from app.api.client_disconnect import CLIENT_CLOSED_REQUEST, ClientGoneError, while_connected
from app.api.request_body import read_body
from app.auth import GatewayKey
from app.errors import InvalidRequestError
from app.protocols.documents.json_body import parse_json
from app.resources import Resources
from app.text_checks.presentation import check_to_dict

router = APIRouter(prefix="/v1/grounding", tags=["grounding"])
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@router.post("/check")
@router.post("/check/", include_in_schema=False)
async def check_grounding(request: Request) -> Response:
    """Check text against sources, claim by claim."""
    resources: Resources = request.state.resources
    key: GatewayKey | None = request.state.key
    body = parse_json(await read_body(request, limit=resources.settings.max_body_bytes))
    try:
        checked = await while_connected(request, resources.checks.check(body, key=key))
    except ClientGoneError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    headers = {"x-groundlane-request-id": checked.request_id, "x-groundlane-action": checked.action.value}
    return Response(orjson.dumps(check_to_dict(checked)), headers=headers, media_type="application/json")


@router.api_route("/{rest:path}", methods=_METHODS, include_in_schema=False)
async def no_such_path(request: Request) -> Response:
    """Reject unknown paths under this prefix. They are never forwarded."""
    raise InvalidRequestError(f"No such path: {request.method} {request.url.path}.", param="path", status=404)
