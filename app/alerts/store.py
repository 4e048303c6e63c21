"""Stores alert rules, destinations and firings, and updates the state of rules."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import orjson
from sqlalchemy import delete, insert, or_, select, tuple_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.alerts.rules import AlertDestination, AlertDocument, AlertFiring, AlertRule, DestinationDocument
from app.auth.audit_log import note
from app.auth.secrets import Vault
from app.db.alert_tables import alert_deliveries, alert_destinations, alert_firings, alert_rules
from app.db.database import Database
from app.errors import ConflictError, InvalidAdminRequestError, NotFoundError

_rules, _firings = alert_rules.c, alert_firings.c


class AlertStore:
    """The alerts in a database. ``vault`` holds the secrets of each destination under the destination's id. All methods
    raise DatabaseUnavailableError."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database, self._vault = database, vault

    # Rules

    async def rules(self) -> Sequence[AlertRule]:
        """Return all rules, sorted by name. Rules that are firing come first."""
        async with self._database.read() as connection:
            found = [_rule(row) for row in (await connection.execute(select(alert_rules).order_by(_rules.name))).all()]
        return sorted(found, key=lambda rule: rule.firing_id is None)

    async def rule(self, id: str) -> AlertRule:
        """Return a rule. Raises NotFoundError."""
        async with self._database.read() as connection:
            return await _find(connection, id)

    async def create(self, document: AlertDocument) -> AlertRule:
        """Create a rule. Raises ConflictError if the name is already in use, and InvalidAdminRequestError if a
        destination doesn't exist."""
        now = datetime.now(UTC)
        row = {"id": f"alr_{uuid4().hex}", "created_at": now, "updated_at": now, "due_at": now, **_columns(document)}
        async with self._database.write() as connection:
            await self._check(connection, document, None)
            await connection.execute(insert(alert_rules), row)
            await note(connection, "alert.create", row["id"], after=document.model_dump())
            return await _find(connection, row["id"])

    async def replace(self, id: str, document: AlertDocument) -> AlertRule:
        """Change a rule. If the rule is firing, it is resolved first, because it fired under its previous definition.

        Raises NotFoundError, ConflictError and InvalidAdminRequestError.
        """
        now = datetime.now(UTC)
        async with self._database.write() as connection:
            before = await _find(connection, id)
            await self._check(connection, document, id)
            await self._resolve(connection, before, None, now)
            changed = {"updated_at": now, "due_at": now, "resolved_at": None, **_columns(document)}
            await connection.execute(update(alert_rules).where(_rules.id == id).values(changed))
            await note(connection, "alert.update", id, before=before.document.model_dump(), after=document.model_dump())
            return await _find(connection, id)

    async def delete(self, id: str) -> None:
        """Delete a rule. If the rule is firing, it is resolved first. Its history is kept. Raises NotFoundError."""
        async with self._database.write() as connection:
            before = await _find(connection, id)
            await self._resolve(connection, before, None, datetime.now(UTC))
            await connection.execute(delete(alert_rules).where(_rules.id == id))
            await note(connection, "alert.delete", id, before=before.document.model_dump())

    async def _check(self, connection: AsyncConnection, document: AlertDocument, id: str | None) -> None:
        same = select(_rules.id).where(_rules.name == document.name, _rules.id != (id or ""))
        if (await connection.execute(same)).first() is not None:
            raise ConflictError(f"an alert named {document.name!r} already exists")
        known = set((await connection.execute(select(alert_destinations.c.id))).scalars())
        for place, destination in enumerate(document.destinations):
            if destination not in known:
                detail = f"unknown destination {destination!r}"
                raise InvalidAdminRequestError(
                    f"destinations: {detail}", errors=[{"loc": ["destinations", place], "msg": detail}]
                )

    # Destinations

    async def destinations(self) -> Sequence[AlertDestination]:
        """Return all destinations, sorted by name, without their secrets."""
        async with self._database.read() as connection:
            found = await connection.execute(select(alert_destinations).order_by(alert_destinations.c.name))
            return [AlertDestination(**row._mapping) for row in found.all()]

    async def destination(self, id: str) -> AlertDestination:
        """Return a destination. Raises NotFoundError."""
        found = {each.id: each for each in await self.destinations()}
        if id not in found:
            raise NotFoundError(f"unknown destination {id!r}")
        return found[id]

    async def put_destination(self, document: DestinationDocument, id: str | None = None) -> AlertDestination:
        """Create a destination, or replace the one with this id. Raises NotFoundError, and ConflictError if the name is
        already in use or secrets can't be stored."""
        now, changed = datetime.now(UTC), {"name": document.name, "kind": document.kind}
        before = None if id is None else await self.destination(id)
        id = id or f"dst_{uuid4().hex}"
        taken = alert_destinations.c.name == document.name, alert_destinations.c.id != id
        async with self._database.read() as connection:
            if (await connection.execute(select(alert_destinations.c.id).where(*taken))).first() is not None:
                raise ConflictError(f"a destination named {document.name!r} already exists")
        # Store the secret first: a destination doesn't work without it.
        await self._vault.put(id, orjson.dumps(document.access()).decode())
        try:
            async with self._database.write() as connection:
                if before is None:
                    row = {"id": id, "created_at": now, "updated_at": now, **changed}
                    await connection.execute(insert(alert_destinations), row)
                else:
                    mine = update(alert_destinations).where(alert_destinations.c.id == id)
                    await connection.execute(mine.values(updated_at=now, **changed))
                action = "alert_destination.create" if before is None else "alert_destination.update"
                await note(connection, action, id, after=changed)
        except IntegrityError:
            if before is None:
                await self._vault.delete(id)
            raise ConflictError(f"a destination named {document.name!r} already exists") from None
        return await self.destination(id)

    async def delete_destination(self, id: str) -> None:
        """Delete a destination and its secrets. Raises NotFoundError, and ConflictError if a rule uses it."""
        found = await self.destination(id)
        async with self._database.write() as connection:
            for row in (await connection.execute(select(alert_rules))).all():
                if id in row.document["destinations"]:
                    raise ConflictError(f"the alert {row.name!r} uses this destination")
            await connection.execute(delete(alert_destinations).where(alert_destinations.c.id == id))
            await note(connection, "alert_destination.delete", id, before={"name": found.name, "kind": found.kind})
        await self._vault.delete(id)

    def access(self, destination_id: str) -> Mapping[str, str] | None:
        """Return a destination's URL and key from memory, or None if they can't be decrypted."""
        stored = self._vault.key(destination_id)
        return None if stored is None else orjson.loads(stored)

    # State

    async def claim_due(self, now: datetime) -> AlertRule | None:
        """Return a rule that is due to be checked, and schedule its next check. Each due rule is returned to only one
        caller across all workers."""
        # If a rule's next check is far in the future, the clock of the worker that scheduled it may be wrong. Treat the
        # rule as due.
        due = or_(_rules.due_at <= now, _rules.due_at > now + timedelta(days=1))
        query = select(alert_rules).where(_rules.enabled.is_(True), due).order_by(_rules.due_at).limit(1)
        async with self._database.write() as connection:
            row = (await connection.execute(query)).first()
            if row is None:
                return None
            rule = _rule(row)
            mine = update(alert_rules).where(_rules.id == rule.id, _rules.due_at == row.due_at)
            claimed = await connection.execute(mine.values(due_at=now + _interval(rule.document)))
        return rule if claimed.rowcount == 1 else None

    async def checked(self, rule: AlertRule, value: float | None, requests: int, now: datetime) -> str | None:
        """Record the result of a check. If the rule's state changes, fire or resolve the rule and return ``firing`` or
        ``resolved``; otherwise return None."""
        document = rule.document
        holds = value is not None and requests >= document.min_requests and _beyond(document, value)
        async with self._database.write() as connection:
            # Read the rule again, because it may have been changed or checked elsewhere since it was claimed.
            row = (await connection.execute(select(alert_rules).where(_rules.id == rule.id).with_for_update())).first()
            if row is None or row.updated_at != rule.updated_at:
                return None
            current = _rule(row)
            state = {"checked_at": now, "value": value, "requests": requests}
            await connection.execute(update(alert_rules).where(_rules.id == rule.id).values(state))
            if holds and value is not None and current.firing_id is None and not _cooling(current, now):
                await self._fire(connection, current, value, requests, now)
                return "firing"
            if not holds and current.firing_id is not None:
                await self._resolve(connection, current, value, now)
                return "resolved"
        return None

    async def _fire(
        self, connection: AsyncConnection, rule: AlertRule, value: float, requests: int, now: datetime
    ) -> None:
        id = f"fir_{uuid4().hex}"
        firing = {
            "id": id,
            "rule_id": rule.id,
            "rule": rule.document.model_dump(),
            "value": value,
            "requests": requests,
            "started_at": now,
        }
        await connection.execute(insert(alert_firings), firing)
        await connection.execute(update(alert_rules).where(_rules.id == rule.id).values(firing_id=id))
        await _send(connection, id, rule.document.destinations, "firing", now)

    async def _resolve(self, connection: AsyncConnection, rule: AlertRule, value: float | None, now: datetime) -> None:
        if rule.firing_id is None:
            return
        mine = update(alert_firings).where(_firings.id == rule.firing_id, _firings.resolved_at.is_(None))
        await connection.execute(mine.values(resolved_at=now, resolved_value=value))
        state = {"firing_id": None, "resolved_at": now}
        await connection.execute(update(alert_rules).where(_rules.id == rule.id).values(state))
        await _send(connection, rule.firing_id, rule.document.destinations, "resolved", now)

    # History

    async def firings(
        self, *, rule_id: str | None = None, limit: int, after: tuple[datetime, str] | None = None
    ) -> Sequence[AlertFiring]:
        """Return up to ``limit`` firings, newest first."""
        query = select(alert_firings).order_by(_firings.started_at.desc(), _firings.id.desc()).limit(limit)
        if rule_id is not None:
            query = query.where(_firings.rule_id == rule_id)
        if after is not None:
            types = [_firings.started_at.type, _firings.id.type]
            query = query.where(tuple_(_firings.started_at, _firings.id) < tuple_(*after, types=types))
        async with self._database.read() as connection:
            return [AlertFiring(**row._mapping) for row in (await connection.execute(query)).all()]

    async def deliveries(self, firing_ids: Sequence[str]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return the messages for these firings, grouped by firing. Each has its destination, event, status, attempts
        and error."""
        columns = alert_deliveries.c
        shown = columns.destination_id, columns.event, columns.status, columns.attempts, columns.sent_at, columns.error
        query = select(columns.firing_id, *shown).where(columns.firing_id.in_(firing_ids)).order_by(columns.next_at)
        found: dict[str, list[Mapping[str, Any]]] = {id: [] for id in firing_ids}
        async with self._database.read() as connection:
            for row in (await connection.execute(query)).all():
                values = {str(name): value for name, value in row._mapping.items()}
                found[values.pop("firing_id")].append(values)
        return found


async def _send(
    connection: AsyncConnection, firing_id: str, destinations: Sequence[str], event: str, now: datetime
) -> None:
    rows = [
        {
            "id": f"dlv_{uuid4().hex}",
            "firing_id": firing_id,
            "destination_id": destination,
            "event": event,
            "status": "pending",
            "attempts": 0,
            "next_at": now,
        }
        for destination in dict.fromkeys(destinations)
    ]
    if rows:
        await connection.execute(insert(alert_deliveries), rows)


async def _find(connection: AsyncConnection, id: str) -> AlertRule:
    row = (await connection.execute(select(alert_rules).where(_rules.id == id))).first()
    if row is None:
        raise NotFoundError(f"unknown alert {id!r}")
    return _rule(row)


def _rule(row: Any) -> AlertRule:
    values = {name: row._mapping[name] for name in AlertRule.__dataclass_fields__ if name != "document"}
    return AlertRule(document=AlertDocument.model_validate(row.document), **values)


def _columns(document: AlertDocument) -> dict[str, Any]:
    return {"name": document.name, "enabled": document.enabled, "document": document.model_dump()}


def _interval(document: AlertDocument) -> timedelta:
    """Return the time between checks. It increases with the window, because some metrics read every row in the
    window."""
    return timedelta(seconds=max(15, document.window_minutes))


def _beyond(document: AlertDocument, value: float) -> bool:
    return value > document.threshold if document.direction == "above" else value < document.threshold


def _cooling(rule: AlertRule, now: datetime) -> bool:
    cooldown = timedelta(minutes=rule.document.cooldown_minutes)
    return rule.resolved_at is not None and now < rule.resolved_at + cooldown
