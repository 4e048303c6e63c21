"""``/dashboard/alerts``: alert rules, their destinations, and their history."""

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from app.alerts.rules import RATIOS, AlertDocument, DestinationDocument, shown
from app.alerts.store import AlertStore
from app.api.admin.alerts import AlertId, firing_states
from app.dashboard.error_messages import readable
from app.dashboard.known_values import distinct_values
from app.dashboard.page_security import DashboardRoute
from app.dashboard.templating import page
from app.dependencies import AlertsDep, ResourcesDep
from app.errors import AdminError, ConflictError
from app.identity import Role, requires
from app.resources import Resources

router = APIRouter(prefix="/alerts", route_class=DashboardRoute)

_PAGE = "/dashboard/alerts"
_NEWEST = 30
_METRICS = {
    "blocked": "Blocked requests (rate)",
    "contradicted": "Replies with contradictions (rate)",
    "unjudged": "Replies with unjudged text (rate)",
    "judge_errors": "Requests with judge errors (rate)",
    "upstream_errors": "Requests with upstream errors (rate)",
    "trust": "Mean trust (rate)",
    "latency_p95_ms": "Latency, 95th percentile (ms)",
    "cost_usd": "Cost (US dollars)",
}
_KINDS = {"webhook": "Webhook", "slack": "Slack", "pagerduty": "PagerDuty"}
_NOT_A_RATE = "Threshold must be between 0 and 100 for a rate."
_MOST_POLICIES = 1_000
_WHOLE = "window_minutes", "min_requests", "cooldown_minutes"
_SEVERITIES = "critical", "error", "warning", "info"
Filled = Mapping[str, Any]


@router.get("")
@requires(Role.VIEWER)
async def show(request: Request, store: AlertsDep, resources: ResourcesDep, done: str = "") -> Response:
    """List the rules with their state, the destinations, and the newest firings."""
    return await _list(request, store, resources, done=done)


@router.get("/new")
@requires(Role.EDITOR)
async def new(request: Request, store: AlertsDep, resources: ResourcesDep) -> Response:
    """Show the form for a new rule."""
    filled: dict[str, Any] = {
        "name": "",
        "metric": "blocked",
        "direction": "above",
        "threshold": "10",
        "severity": "error",
    }
    filled |= {"window_minutes": "15", "min_requests": "20", "cooldown_minutes": "15", "enabled": True}
    return await _form(
        request, store, resources, filled | {"agent": "", "model": "", "policy": "", "destinations": []}, None
    )


@router.post("/new")
@requires(Role.EDITOR)
async def create(request: Request, store: AlertsDep, resources: ResourcesDep) -> Response:
    filled = await _filled(request)
    try:
        await store.create(_document(filled))
    except (ValidationError, AdminError) as error:
        return await _form(request, store, resources, filled, None, error)
    return RedirectResponse(f"{_PAGE}?done=created", status_code=303)


@router.post("/destinations")
@requires(Role.ADMIN)
async def create_destination(request: Request, store: AlertsDep, resources: ResourcesDep) -> Response:
    form = await request.form()
    filled = {name: str(form.get(name, "")).strip() for name in ("name", "kind", "url", "key")}
    try:
        await store.put_destination(DestinationDocument.model_validate({k: v for k, v in filled.items() if v}))
    except (ValidationError, AdminError) as error:
        kept = {name: filled[name] for name in ("name", "kind")}
        return await _list(request, store, resources, status=422, to=kept, errors=_errors(error))
    return RedirectResponse(f"{_PAGE}?done=destination", status_code=303)


@router.post("/destinations/{destination_id}/test")
@requires(Role.EDITOR)
async def check_destination(
    request: Request, store: AlertsDep, resources: ResourcesDep, destination_id: AlertId
) -> Response:
    """Send a test message and show whether it was delivered."""
    fault = await resources.alert_deliveries.test(await store.destination(destination_id))
    if fault is not None:
        return await _list(
            request, store, resources, status=502, problem=f"The test message was not delivered: {fault}."
        )
    return RedirectResponse(f"{_PAGE}?done=tested", status_code=303)


@router.post("/destinations/{destination_id}/delete")
@requires(Role.ADMIN)
async def delete_destination(
    request: Request, store: AlertsDep, resources: ResourcesDep, destination_id: AlertId
) -> Response:
    try:
        await store.delete_destination(destination_id)
    except ConflictError as error:
        return await _list(request, store, resources, status=error.status, problem=error.message)
    return RedirectResponse(f"{_PAGE}?done=deleted", status_code=303)


@router.get("/{alert_id}")
@requires(Role.VIEWER)
async def edit(request: Request, store: AlertsDep, resources: ResourcesDep, alert_id: AlertId) -> Response:
    """Show the form to change a rule."""
    rule = await store.rule(alert_id)
    return await _form(request, store, resources, _filled_by(rule.document), alert_id)


@router.post("/{alert_id}")
@requires(Role.EDITOR)
async def replace(request: Request, store: AlertsDep, resources: ResourcesDep, alert_id: AlertId) -> Response:
    filled = await _filled(request)
    try:
        await store.replace(alert_id, _document(filled))
    except (ValidationError, AdminError) as error:
        return await _form(request, store, resources, filled, alert_id, error)
    return RedirectResponse(f"{_PAGE}?done=saved", status_code=303)


@router.post("/{alert_id}/delete")
@requires(Role.EDITOR)
async def delete(store: AlertsDep, alert_id: AlertId) -> Response:
    await store.delete(alert_id)
    return RedirectResponse(f"{_PAGE}?done=deleted", status_code=303)


async def _list(
    request: Request, store: AlertStore, resources: Resources, *, status: int = 200, **context: Any
) -> Response:
    found = await store.firings(limit=_NEWEST)
    context = {"done": "", "problem": "", "to": {"name": "", "kind": "webhook"}, "errors": {}} | context
    destinations = await store.destinations()
    return page(
        request,
        "alerts/list.html",
        status=status,
        rules=await store.rules(),
        destinations=destinations,
        called={each.id: each.name for each in destinations},
        firings=await firing_states(store, found),
        metrics=_METRICS,
        kinds=_KINDS,
        policies=await _policy_names(resources),
        shown=shown,
        **context,
    )


async def _form(
    request: Request,
    store: AlertStore,
    resources: Resources,
    filled: Filled,
    id: str | None,
    error: ValidationError | AdminError | None = None,
) -> Response:
    return page(
        request,
        "alerts/form.html",
        status=200 if error is None else 422,
        id=id,
        filled=filled,
        errors={} if error is None else _errors(error),
        metrics=_METRICS,
        ratios=RATIOS,
        severities=_SEVERITIES,
        destinations=await store.destinations(),
        agents=await distinct_values(resources.database, "agent"),
        models=await distinct_values(resources.database, "model"),
        policies=await _policy_names(resources),
    )


async def _policy_names(resources: Resources) -> dict[str, str]:
    return {policy.id: policy.name for policy in await resources.policies.list(limit=_MOST_POLICIES)}


def _filled_by(document: AlertDocument) -> dict[str, Any]:
    """Fill in the form from a rule. The form has rates in percent."""
    scale = 100 if document.metric in RATIOS else 1
    threshold = Decimal(str(document.threshold)) * scale
    return document.model_dump() | {"threshold": f"{threshold.normalize():f}"}


async def _filled(request: Request) -> dict[str, Any]:
    form = await request.form()
    names = (*("name", "metric", "direction", "threshold", "severity", "agent", "model", "policy"), *_WHOLE)
    filled: dict[str, Any] = {name: str(form.get(name, "")).strip() for name in names}
    filled["destinations"] = [str(value) for value in form.getlist("destinations")]
    return filled | {"enabled": form.get("enabled") == "on"}


def _document(filled: Filled) -> AlertDocument:
    """Build the document from the form. Raises pydantic's ValidationError."""
    values = {name: value for name, value in filled.items() if value != ""}
    for name in _WHOLE:
        if str(values.get(name, "")).isdecimal():
            values[name] = int(values[name])
    scale = 100 if values.get("metric") in RATIOS else 1
    with suppress(ValueError):  # The Pydantic model reports it.
        values["threshold"] = round(float(values.get("threshold", "")) / scale, 10)
    return AlertDocument.model_validate(values)


def _errors(error: ValidationError | AdminError) -> dict[str, str]:
    """Return the first error message of each field. If an error has no field, take the field from the start of its
    message."""
    if isinstance(error, AdminError):
        return {"name" if isinstance(error, ConflictError) else "destinations": f"{error.message}."}
    found: dict[str, str] = {}
    for each in reversed(error.errors()):
        message = readable(each["msg"])
        field, separator, rest = message.partition(": ")
        if each["loc"]:
            found[str(each["loc"][0])] = f"{message}."
        elif separator:
            found[field.lower()] = f"{rest[:1].upper()}{rest[1:]}."
        else:
            found["threshold"] = _NOT_A_RATE
    return found
