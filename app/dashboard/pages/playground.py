"""``/dashboard/playground``: runs an answer through the gateway's pipeline and shows how it is judged."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response

from app.api.streaming_response import StreamedResponse
from app.dashboard.known_values import distinct_values
from app.dashboard.page_security import DashboardRoute
from app.dashboard.playground.examples import EXAMPLES, FormDocument
from app.dashboard.playground.form import (
    IN_FORCE,
    PlaygroundForm,
    example_form,
    form_errors,
    form_from_trace,
    playground_run,
    read_form,
)
from app.dashboard.playground.live_steps import StepRenderer
from app.dashboard.playground.playground_runner import PlaygroundRun, RunFinished, read_chunks, run_playground
from app.dashboard.templating import page
from app.dashboard.trace.trace_view import trace_view
from app.dependencies import QueriesDep, ResourcesDep
from app.errors import GatewayError, InvalidRequestError, NotFoundError
from app.field_types import Word
from app.identity import Role, requires
from app.policy_admin.policy_document import StoredPolicy
from app.policy_admin.policy_store import PolicyStore
from app.resources import Resources
from app.settings import StoreText
from policies.base import RulesError

router = APIRouter(route_class=DashboardRoute)

_UNPROCESSABLE = 422


@router.get("/playground")
@requires(Role.EDITOR)
async def show(
    request: Request,
    resources: ResourcesDep,
    queries: QueriesDep,
    example: Annotated[Word | None, Query()] = None,
    from_request: Annotated[Word | None, Query(alias="request")] = None,
    policy: Annotated[Word | None, Query()] = None,
) -> Response:
    """Show the form, filled in with an example or a logged request, and with ``policy`` selected."""
    form, notice = example_form(example or ""), None
    if from_request is not None:
        stored = form_from_trace(await queries.trace(from_request))
        form = stored or form
        notice = (
            f"Filled in with the documents and reply of {from_request}."
            if stored
            else f"The text of {from_request} wasn't stored. Showing an example instead."
        )
    if policy is not None:
        form = replace(form, policy=policy)
    return await _page(request, resources, form, notice=notice)


@router.post("/playground")
@requires(Role.EDITOR)
async def submit(request: Request, resources: ResourcesDep) -> Response:
    """Show the form with its result, for browsers without JavaScript."""
    sent = await request.form()
    form = read_form(sent)
    if "add" in sent:
        return await _page(request, resources, replace(form, documents=[*form.documents, FormDocument()]))
    run, errors = await _validated(resources, form)
    if run is None:
        return await _page(request, resources, form, errors=errors, status=_UNPROCESSABLE)
    finished = RunFinished(trace=None, error=None)
    async with aclosing(run_playground(resources, run)) as events:
        async for event in events:
            finished = event if isinstance(event, RunFinished) else finished
    return await _page(request, resources, form, finished=finished)


@router.post("/playground/watch")
@requires(Role.EDITOR)
async def watch(request: Request, resources: ResourcesDep) -> Response:
    """Stream the run as JSON Lines, one per step. They contain fragments of the page."""
    run, errors = await _validated(resources, read_form(await request.form()))
    if run is None:
        return Response(orjson.dumps({"errors": errors}), status_code=_UNPROCESSABLE, media_type="application/json")
    lines = _lines(resources, run)
    return StreamedResponse(
        lines,
        [("content-type", "application/x-ndjson"), ("x-accel-buffering", "no")],
        status=200,
        aclose=lines.aclose,
        send_timeout_s=resources.settings.send_timeout_s,
    )


async def _validated(resources: Resources, form: PlaygroundForm) -> tuple[PlaygroundRun | None, dict[str, str]]:
    """Return the run that the form describes, or the form's errors by field."""
    errors = form_errors(form)
    if errors:
        return None, errors
    try:
        run = playground_run(form, await _policy(resources.policies, form.policy))
        read_chunks(resources, run)
    except NotFoundError:
        return None, {"policy": "This policy no longer exists."}
    except RulesError as error:
        return None, {"policy": f"This version of Groundlane can't read the policy's rules: {error}"}
    except InvalidRequestError as error:
        return None, {"documents": error.message}
    return run, {}


async def _policy(store: PolicyStore, policy_id: str) -> StoredPolicy | None:
    return None if policy_id in ("", IN_FORCE) else await store.get(policy_id)


async def _lines(resources: Resources, run: PlaygroundRun) -> AsyncGenerator[bytes, None]:
    renderer = StepRenderer(read_chunks(resources, run))
    try:
        async with aclosing(run_playground(resources, run)) as events:
            async for event in events:
                yield orjson.dumps(renderer.render(event)) + b"\n"
    except GatewayError as error:
        yield orjson.dumps({"kind": "finished", "html": "", "error": error.message}) + b"\n"


async def _page(
    request: Request,
    resources: Resources,
    form: PlaygroundForm,
    *,
    errors: Mapping[str, str] | None = None,
    notice: str | None = None,
    finished: RunFinished | None = None,
    status: int = 200,
) -> Response:
    policies: Sequence[StoredPolicy] = await resources.policies.list(limit=1_000)
    trace = None if finished is None else finished.trace
    return page(
        request,
        "playground/page.html",
        status=status,
        form=form,
        errors=errors or {},
        notice=notice,
        finished=finished,
        view=None if trace is None else trace_view(trace, store_text=StoreText.FULL),
        policies=policies,
        in_force=IN_FORCE,
        models=await distinct_values(resources.database, "model"),
        agents=await distinct_values(resources.database, "agent"),
        examples=EXAMPLES,
    )
