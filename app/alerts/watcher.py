"""Checks alert rules and sends their messages in the background of each worker."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app.alerts.delivery_queue import AlertDeliveryQueue
from app.alerts.measures import measure
from app.alerts.store import AlertStore
from app.db.database import Database, DatabaseUnavailableError
from judges.concurrency import TaskScope
from judges.llm import PriceTable

_log = structlog.stdlib.get_logger(__name__)
_EVERY_S = 5.0


class AlertWatcher:
    """Runs in every worker. Workers claim due rules and messages in the database, so each is handled only once. If a
    worker stops, the others continue. ``observe`` is called with ``firing`` or ``resolved`` when a rule's state
    changes."""

    def __init__(
        self,
        database: Database,
        store: AlertStore,
        deliveries: AlertDeliveryQueue,
        prices: PriceTable,
        observe: Callable[[str], None],
        *,
        every_s: float = _EVERY_S,
    ) -> None:
        self._database, self._store, self._deliveries, self._prices = database, store, deliveries, prices
        self._observe, self._every_s = observe, every_s
        self._scope = TaskScope()

    def start(self) -> None:
        """Start in the background."""
        self._scope.start(self._run())

    async def aclose(self) -> None:
        await self._scope.aclose()

    async def run_once(self) -> None:
        """Check all rules and send all messages that are due. Raises DatabaseUnavailableError."""
        now = datetime.now(UTC)
        while (rule := await self._store.claim_due(now)) is not None:
            value, requests = await measure(self._database, self._prices, rule.document, now)
            change = await self._store.checked(rule, value, requests, now)
            if change is not None:
                _log.info("alert_changed", alert_id=rule.id, state=change, value=value, requests=requests)
                self._observe(change)
        while await self._deliveries.send_due():
            pass

    async def _run(self) -> None:
        failing = False
        while True:
            try:
                await self.run_once()
            except (DatabaseUnavailableError, SQLAlchemyError) as error:
                if not failing:
                    _log.warning("alert_check_failed", error=type(error).__name__)
                failing = True
            else:
                failing = False
            await asyncio.sleep(self._every_s)
