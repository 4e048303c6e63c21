"""Stores budgets. Lookups read from memory; changes are written to the database."""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import structlog
from sqlalchemy import and_, case, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.auth.audit_log import note
from app.budgets.budget import Budget, BudgetDraft, BudgetUnit, counted, period_of, resets_at, shown
from app.db.access_tables import budget_usage, budgets
from app.db.database import Database, DatabaseUnavailableError
from app.db.tables import BUDGET_REVISION
from app.errors import ConflictError, NotFoundError
from app.worker_sync.change_notifications import announce_change

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBudget(Budget):
    """A budget and its usage in the current period. Amounts are in requests, tokens or US dollars. ``unpriced`` is the
    number of requests in the period whose cost isn't fully known."""

    used: Decimal
    remaining: Decimal
    unpriced: int
    resets_at: datetime
    created_at: datetime


class BudgetStore:
    """The budgets in a database. Lookups read from memory, so requests without a budget don't need the database.

    ``refresh`` loads the budgets. The store's owner calls it at startup and when another process has changed a budget.
    Methods that make changes raise DatabaseUnavailableError.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._in_force: Mapping[tuple[str, str], Sequence[Budget]] = {}

    @property
    def any(self) -> bool:
        """Whether there are any budgets."""
        return bool(self._in_force)

    def matching(self, key_prefix: str | None, agent: str | None) -> Sequence[Budget]:
        """Return the budgets of a key and an agent."""
        if not self._in_force:
            return ()
        found = [*self._in_force.get(("key", key_prefix or ""), ()), *self._in_force.get(("agent", agent or ""), ())]
        return sorted(found, key=lambda budget: budget.id)

    async def refresh(self) -> None:
        """Load the budgets from the database. Raises DatabaseUnavailableError."""
        async with self._database.read() as connection:
            rows = (await connection.execute(select(budgets))).all()
        found: dict[tuple[str, str], list[Budget]] = defaultdict(list)
        for row in rows:
            found[row.subject, row.name].append(_budget(row))
        self._in_force = dict(found)

    async def list(self) -> Sequence[StoredBudget]:
        """Return all budgets with their usage, sorted by subject and name."""
        async with self._database.read() as connection:
            rows = (await connection.execute(_with_use(datetime.now(UTC)))).all()
        return [_stored(row) for row in rows]

    async def get(self, id: str) -> StoredBudget:
        """Return one budget. Raises NotFoundError."""
        async with self._database.read() as connection:
            return await _get(connection, id)

    async def create(self, draft: BudgetDraft) -> StoredBudget:
        """Create a budget. Raises ConflictError if one already exists for the same subject, unit and period."""
        budget = Budget(id=f"bud_{uuid4().hex}", **asdict(draft))
        async with self._changing() as connection:
            columns = budgets.c
            same = select(columns.id).where(
                columns.subject == budget.subject,
                columns.name == budget.name,
                columns.unit == budget.unit,
                columns.period == budget.period,
            )
            if (found := (await connection.execute(same)).first()) is not None:
                raise ConflictError(f"This budget already exists: {found.id}. Change its limit instead.")
            row = {**asdict(budget), "limit": budget.most, "created_at": datetime.now(UTC)}
            await connection.execute(insert(budgets), row)
            await note(connection, "budget.create", budget.id, after=_audited(budget))
            return await _get(connection, budget.id)

    async def change(self, id: str, changes: Mapping[str, Any]) -> StoredBudget:
        """Change the ``limit`` or ``uncounted`` of a budget. This doesn't reset the usage. Raises NotFoundError."""
        async with self._changing() as connection:
            before = await _get(connection, id)
            if not changes:
                return before
            values = dict(changes)
            if "limit" in values:
                values["limit"] = counted(before.unit, values["limit"])
            await connection.execute(update(budgets).where(budgets.c.id == id).values(**values))
            after = await _get(connection, id)
            await note(connection, "budget.update", id, before=_audited(before), after=_audited(after))
            return after

    async def delete(self, id: str) -> None:
        """Delete a budget and its recorded usage. Raises NotFoundError."""
        async with self._changing() as connection:
            before = await _get(connection, id)
            await connection.execute(delete(budget_usage).where(budget_usage.c.budget_id == id))
            await connection.execute(delete(budgets).where(budgets.c.id == id))
            await note(connection, "budget.delete", id, before=_audited(before))

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[AsyncConnection]:
        async with self._database.write() as connection:
            await announce_change(self._database, connection, BUDGET_REVISION)
            yield connection
        try:
            await self.refresh()
        except DatabaseUnavailableError:
            _log.warning("budget_refresh_failed")  # The change is stored; the next refresh loads it.


def _with_use(now: datetime) -> Any:
    columns = budgets.c
    current = case((columns.period == "day", period_of("day", now)), else_=period_of("month", now))
    join = and_(budget_usage.c.budget_id == columns.id, budget_usage.c.period == current)
    return (
        select(budgets, budget_usage.c.used, budget_usage.c.unpriced)
        .select_from(budgets.outerjoin(budget_usage, join))
        .order_by(columns.subject, columns.name, columns.unit, columns.period)
    )


async def _get(connection: AsyncConnection, id: str) -> StoredBudget:
    row = (await connection.execute(_with_use(datetime.now(UTC)).where(budgets.c.id == id))).one_or_none()
    if row is None:
        raise NotFoundError(f"unknown budget {id!r}")
    return _stored(row)


def _budget(row: Any) -> Budget:
    unit = BudgetUnit(row.unit)
    return Budget(
        id=row.id,
        subject=row.subject,
        name=row.name,
        unit=unit,
        period=row.period,
        limit=shown(unit, row.limit),
        uncounted=row.uncounted,
    )


def _stored(row: Any) -> StoredBudget:
    budget, used = _budget(row), row.used or 0
    return StoredBudget(
        **{each.name: getattr(budget, each.name) for each in fields(Budget)},
        used=shown(budget.unit, used),
        remaining=shown(budget.unit, max(0, row.limit - used)),
        unpriced=row.unpriced or 0,
        resets_at=resets_at(budget.period, datetime.now(UTC)),
        created_at=row.created_at,
    )


def _audited(budget: Budget) -> dict[str, Any]:
    return {**{each.name: getattr(budget, each.name) for each in fields(BudgetDraft)}, "limit": float(budget.limit)}
