"""``/v1/runs``: the runs of multi-step agents."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Header, Path, Request, Response

from app.api.request_body import read_body
from app.errors import InvalidRequestError
from app.resources import Resources
from app.runs.run_access import RunCaller
from app.runs.run_presentation import run_to_dict, step_to_dict
from app.runs.run_requests import (
    LARGEST_BODY,
    read_grounding_report,
    read_run_completion,
    read_run_document,
    read_run_start,
)
from app.runs.run_service import RunService, StepResult

router = APIRouter(prefix="/v1/runs", tags=["runs"])
RunId = Annotated[str, Path(min_length=1, max_length=200)]


async def _caller(
    request: Request,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> RunCaller:
    return RunCaller(key=request.state.key, repeat=idempotency_key)


CallerDep = Annotated[RunCaller, Depends(_caller)]
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@router.post("", status_code=201)
@router.post("/", status_code=201, include_in_schema=False)
async def start_run(request: Request, caller: CallerDep) -> Response:
    """Start a run. The policies that are active now apply to the whole run."""
    opening = read_run_start(await _body(request), request.headers)
    result = await _runs(request).start(agent=opening.agent, model=opening.model, caller=caller)
    return _answer(result, status=201)


@router.post("/{run_id}/retrieval")
async def record_retrieval(request: Request, run_id: RunId, caller: CallerDep) -> Response:
    """Record a retrieved document and check it."""
    body = await _body(request)
    chunk = read_run_document(body)
    if caller.key is not None:
        caller.key.check_documents([chunk], lambda _: "collection")
    return _answer(await _runs(request).record_document(run_id, chunk, caller=replace(caller, body=body)))


@router.post("/{run_id}/grounding")
async def record_grounding(request: Request, run_id: RunId, caller: CallerDep) -> Response:
    """Record scores, citations, unsupported claims and a confidence value, and check the scores."""
    body = await _body(request)
    reported = read_grounding_report(body)
    return _answer(await _runs(request).record_grounding(run_id, reported, caller=replace(caller, body=body)))


@router.post("/{run_id}/complete")
async def complete_run(request: Request, run_id: RunId, caller: CallerDep) -> Response:
    """Complete a run and check everything recorded in it."""
    body = await _body(request)
    result = read_run_completion(body).result
    return _answer(await _runs(request).complete(run_id, result, caller=replace(caller, body=body)))


@router.get("/{run_id}")
async def get_run(request: Request, run_id: RunId, caller: CallerDep) -> Response:
    """Get a run with its records and decisions."""
    return _json(run_to_dict(await _runs(request).get(run_id, caller=caller)))


@router.api_route("", methods=_METHODS, include_in_schema=False)
@router.api_route("/{rest:path}", methods=_METHODS, include_in_schema=False)
async def no_such_path(request: Request) -> Response:
    """Reject unknown paths under this prefix. They are never forwarded."""
    raise InvalidRequestError(f"No such path: {request.method} {request.url.path}.", param="path", status=404)


def _runs(request: Request) -> RunService:
    resources: Resources = request.state.resources
    return resources.runs


async def _body(request: Request) -> bytes:
    resources: Resources = request.state.resources
    return await read_body(request, limit=min(LARGEST_BODY, resources.settings.max_body_bytes))


def _answer(result: StepResult, *, status: int = 200) -> Response:
    """The status is 200 even if a policy blocks, because the step was recorded. The client is responsible for
    stopping."""
    headers = {"x-groundlane-action": result.outcome.action.value}
    if result.request_id is not None:
        headers["x-groundlane-request-id"] = result.request_id
    return _json(step_to_dict(result), status=status, headers=headers)


def _json(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    content = orjson.dumps(body, option=orjson.OPT_UTC_Z)
    return Response(content, status_code=status, headers=headers, media_type="application/json")
