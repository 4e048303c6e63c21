"""Delivers alert notifications. One worker sends each message, and retries survive restarts."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import uuid4

from sqlalchemy import ColumnElement, and_, exists, select, update

from app.alerts.http_sender import DeliveryError, MessageSender
from app.alerts.message_formats import Event, message, sample_firing
from app.alerts.rules import AlertDestination, AlertFiring
from app.alerts.store import AlertStore
from app.db.alert_tables import alert_deliveries, alert_destinations, alert_firings
from app.db.database import Database

_LEASE = timedelta(minutes=1)
"""If a worker hasn't sent a message within this time, another worker takes over."""
_RETRY_S = (10, 30, 120, 600, 1_800)
_columns = alert_deliveries.c


class AlertDeliveryQueue:
    """Sends pending messages. ``observe`` is called with the outcome of each attempt: ``sent``, ``retried`` or
    ``failed``."""

    def __init__(
        self, database: Database, store: AlertStore, sender: MessageSender, observe: Callable[[str], None]
    ) -> None:
        self._database, self._store, self._sender, self._observe = database, store, sender, observe

    async def send_due(self) -> bool:
        """Send one due message. Return False if no message is due. Raises DatabaseUnavailableError."""
        claimed = await self._claim(datetime.now(UTC))
        if claimed is None:
            return False
        delivery, firing, destination = claimed
        try:
            await self._send(destination, delivery.id, cast(Event, delivery.event), firing)
        except DeliveryError as error:
            await self._failed(delivery, error)
        else:
            self._observe("sent")
            await self._note(delivery.id, status="sent", sent_at=datetime.now(UTC), error=None)
        return True

    async def test(self, destination: AlertDestination, *, name: str = "Test") -> str | None:
        """Send a test message for an alert named ``name``. Return the error, or None if the message was delivered."""
        try:
            await self._send(destination, f"dlv_{uuid4().hex}", "test", sample_firing(name, datetime.now(UTC)))
        except DeliveryError as error:
            return str(error)
        return None

    async def _send(
        self, destination: AlertDestination | None, delivery_id: str, event: Event, firing: AlertFiring
    ) -> None:
        if destination is None:
            raise DeliveryError("the destination was deleted", permanent=True)
        access = self._store.access(destination.id)
        if access is None:
            raise DeliveryError("the destination's secret can't be decrypted (check GROUNDLANE_SECRET_KEY)")
        made = message(destination.kind, access, delivery_id, event, firing)
        await self._sender.send(access["url"], made.body, made.headers)

    async def _claim(self, now: datetime) -> tuple[Any, AlertFiring, AlertDestination | None] | None:
        query = select(alert_deliveries).where(_columns.status == "pending", _columns.next_at <= now, ~_waits())
        async with self._database.write() as connection:
            delivery = (await connection.execute(query.order_by(_columns.next_at).limit(1))).first()
            if delivery is None:
                return None
            mine = update(alert_deliveries).where(_columns.id == delivery.id, _columns.next_at == delivery.next_at)
            taken = await connection.execute(mine.values(next_at=now + _LEASE, attempts=_columns.attempts + 1))
            if taken.rowcount != 1:
                return None
            of = alert_firings.c.id == delivery.firing_id
            firing = (await connection.execute(select(alert_firings).where(of))).one()
            to = alert_destinations.c.id == delivery.destination_id
            found = (await connection.execute(select(alert_destinations).where(to))).first()
        destination = None if found is None else AlertDestination(**found._mapping)
        return delivery, AlertFiring(**firing._mapping), destination

    async def _failed(self, delivery: Any, error: DeliveryError) -> None:
        if error.permanent or delivery.attempts >= len(_RETRY_S):
            self._observe("failed")
            await self._note(delivery.id, status="failed", error=str(error))
            return
        self._observe("retried")
        next_at = datetime.now(UTC) + timedelta(seconds=_RETRY_S[delivery.attempts])
        await self._note(delivery.id, next_at=next_at, error=str(error))

    async def _note(self, id: str, **values: Any) -> None:
        async with self._database.write() as connection:
            await connection.execute(update(alert_deliveries).where(_columns.id == id).values(values))


def _waits() -> ColumnElement[bool]:
    """Whether a message must wait. A ``resolved`` message is sent only after the ``firing`` message."""
    earlier = alert_deliveries.alias()
    same = earlier.c.firing_id == _columns.firing_id, earlier.c.destination_id == _columns.destination_id
    unsent = exists().where(and_(*same, earlier.c.event == "firing", earlier.c.status == "pending"))
    return and_(_columns.event == "resolved", unsent.correlate(alert_deliveries))
