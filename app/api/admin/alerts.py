"""``/admin/v1/alerts``: alert rules, their destinations, and their history."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict

from app.alerts.rules import AlertDestination, AlertDocument, AlertRule, DestinationDocument
from app.alerts.store import AlertStore
from app.api.admin.common import AdminRoute, CursorText, Limit, decode_cursor, encode_cursor
from app.dependencies import AlertsDep, ResourcesDep
from app.field_types import Line, Word
from app.identity import Role, requires

router = APIRouter(prefix="/alerts", route_class=AdminRoute, tags=["alerts"])

AlertId = Annotated[Word, Path()]


class AlertState(AlertDocument):
    """An alert rule and its state. ``value`` and ``requests`` are from the last check."""

    id: str
    state: str
    firing_id: str | None
    value: float | None
    requests: int | None
    checked_at: datetime | None
    created_at: datetime
    updated_at: datetime


class AlertPage(BaseModel):
    items: list[AlertState]
    next_cursor: str | None = None


class DestinationPage(BaseModel):
    items: list[AlertDestination]
    next_cursor: str | None = None


class SampleDocument(BaseModel):
    """A test message. ``name`` is the alert name to show in it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Line = "Test"


class SampleOutcome(BaseModel):
    """Whether a test message was delivered. If not, ``error`` says why."""

    delivered: bool
    error: str | None


class DeliveryState(BaseModel):
    """A message about a firing. ``event`` is ``firing`` or ``resolved``. ``status`` is ``pending``, ``sent`` or
    ``failed``."""

    destination_id: str
    event: str
    status: str
    attempts: int
    sent_at: datetime | None
    error: str | None


class FiringState(BaseModel):
    """A period during which a rule fired. ``rule`` is a copy of the rule as it was when it fired."""

    id: str
    rule_id: str
    rule: dict[str, Any]
    summary: str
    value: float
    requests: int
    started_at: datetime
    resolved_at: datetime | None
    resolved_value: float | None
    deliveries: list[DeliveryState]


class FiringPage(BaseModel):
    items: list[FiringState]
    next_cursor: str | None


@router.get("/destinations")
@requires(Role.VIEWER)
async def list_destinations(store: AlertsDep) -> DestinationPage:
    """List the destinations, sorted by name, without their secrets."""
    return DestinationPage(items=list(await store.destinations()))


@router.post("/destinations", status_code=201)
@requires(Role.ADMIN)
async def create_destination(store: AlertsDep, document: DestinationDocument) -> AlertDestination:
    """Create a destination. Its URL and key are stored encrypted."""
    return await store.put_destination(document)


@router.put("/destinations/{destination_id}")
@requires(Role.ADMIN)
async def replace_destination(
    store: AlertsDep, destination_id: AlertId, document: DestinationDocument
) -> AlertDestination:
    """Replace a destination and its secrets."""
    return await store.put_destination(document, destination_id)


@router.delete("/destinations/{destination_id}", status_code=204)
@requires(Role.ADMIN)
async def delete_destination(store: AlertsDep, destination_id: AlertId) -> None:
    """Delete a destination that no alert uses."""
    await store.delete_destination(destination_id)


@router.post("/destinations/{destination_id}/test")
@requires(Role.EDITOR)
async def check_destination(
    store: AlertsDep, resources: ResourcesDep, destination_id: AlertId, document: SampleDocument
) -> SampleOutcome:
    """Send a test message and report whether it was delivered."""
    error = await resources.alert_deliveries.test(await store.destination(destination_id), name=document.name)
    return SampleOutcome(delivered=error is None, error=error)


@router.get("/firings")
@requires(Role.VIEWER)
async def list_firings(
    store: AlertsDep, alert_id: Word | None = None, limit: Limit = 50, cursor: CursorText | None = None
) -> FiringPage:
    """List the firings, newest first, with their messages."""
    after = None if cursor is None else decode_cursor(cursor, datetime, str)
    found = await store.firings(rule_id=alert_id, limit=limit + 1, after=after)
    last = found[limit - 1] if len(found) > limit else None
    return FiringPage(
        items=await firing_states(store, found[:limit]),
        next_cursor=None if last is None else encode_cursor(last.started_at, last.id),
    )


async def firing_states(store: AlertStore, found: Any) -> list[FiringState]:
    """Return the firings with their messages."""
    deliveries = await store.deliveries([firing.id for firing in found])
    return [
        FiringState.model_validate(
            {name: getattr(firing, name) for name in FiringState.model_fields if name != "deliveries"}
            | {"deliveries": deliveries[firing.id]}
        )
        for firing in found
    ]


@router.get("")
@requires(Role.VIEWER)
async def list_alerts(store: AlertsDep) -> AlertPage:
    """List the alert rules with their state. Rules that are firing come first."""
    return AlertPage(items=[_state(rule) for rule in await store.rules()])


@router.post("", status_code=201)
@requires(Role.EDITOR)
async def create_alert(store: AlertsDep, document: AlertDocument) -> AlertState:
    """Create an alert rule."""
    return _state(await store.create(document))


@router.get("/{alert_id}")
@requires(Role.VIEWER)
async def get_alert(store: AlertsDep, alert_id: AlertId) -> AlertState:
    """Get an alert rule and its state."""
    return _state(await store.rule(alert_id))


@router.put("/{alert_id}")
@requires(Role.EDITOR)
async def replace_alert(store: AlertsDep, alert_id: AlertId, document: AlertDocument) -> AlertState:
    """Replace an alert rule. If it is firing, it is resolved first."""
    return _state(await store.replace(alert_id, document))


@router.delete("/{alert_id}", status_code=204)
@requires(Role.EDITOR)
async def delete_alert(store: AlertsDep, alert_id: AlertId) -> None:
    """Delete an alert rule. If it is firing, it is resolved first. Its history is kept."""
    await store.delete(alert_id)


def _state(rule: AlertRule) -> AlertState:
    return AlertState.model_validate(rule.to_dict())
