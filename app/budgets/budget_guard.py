"""Checks budgets before a request is forwarded, and counts the request's usage afterwards."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal

import structlog
from sqlalchemy import Connection, select, update

from app.budgets.budget import NANO, Budget, BudgetUnit, exhausted, period_of
from app.budgets.budget_store import BudgetStore
from app.db.access_tables import budget_usage
from app.db.database import Database, DatabaseUnavailableError
from app.errors import UncountedError
from app.events.records import RecordedRequest, RequestRow
from judges.concurrency import TaskScope

_log = structlog.stdlib.get_logger(__name__)
_WRITTEN_EVERY_S = 0.05
_RETRY_S = 1.0

CostOf = Callable[[str, int, int], Decimal | None]
_Counts = dict[tuple[str, str], tuple[int, int]]
"""The amount used and the number of unpriced requests, by budget and period."""


class BudgetGuard:
    """Enforces budgets in one process. ``cost_of`` returns the cost of a call in US dollars, or None if the price is
    unknown.

    A request is admitted if none of its budgets is used up. The same transaction counts the request, so a request
    budget is never exceeded. Tokens and cost are known only afterwards, so requests in flight can exceed a token or
    cost budget. While the database is unavailable, requests are admitted and their counts are kept in memory.

    Each transaction also writes the pending counts of other requests. It therefore runs in a separate task, which
    finishes even if the request that started it is cancelled.
    """

    def __init__(self, database: Database, store: BudgetStore, cost_of: CostOf) -> None:
        self._database, self._store, self._cost_of = database, store, cost_of
        self._waiting: _Counts = {}
        self._new = asyncio.Event()
        self._scope, self._transactions = TaskScope(), TaskScope()

    def start(self) -> None:
        self._scope.start(self._write_waiting())

    async def aclose(self) -> None:
        """Write the pending counts and stop."""
        await self._scope.aclose()
        await self._transactions.join()
        await self._flush()

    async def admit(
        self, *, key_prefix: str | None, agent: str | None, model: str | None, counts_tokens: bool = True
    ) -> None:
        """Admit and count one request. ``counts_tokens`` says whether the gateway will know the request's tokens.

        Raises BudgetError if a budget is used up, and UncountedError if the request is blocked because a budget can't
        count it.
        """
        budgets = self._store.matching(key_prefix, agent)
        if not budgets:
            return
        self._check_countable(budgets, model, counts_tokens)
        await asyncio.shield(self._transactions.start(self._admit(budgets)))

    async def _admit(self, budgets: Sequence[Budget]) -> None:
        now = datetime.now(UTC)
        waiting = self._take_waiting()
        try:
            await self._database.transact(lambda connection: _admit(connection, self._database, budgets, waiting, now))
        except DatabaseUnavailableError:
            self._put_back(waiting)
            for budget in budgets:
                if budget.unit is BudgetUnit.REQUESTS:
                    self._add(budget, now, 1)
            _log.warning("budget_not_checked", budgets=[budget.id for budget in budgets])
        except BaseException:
            self._put_back(waiting)
            raise

    def observe(self, record: RecordedRequest) -> None:
        """Count the tokens and cost of a finished or aborted request. The cost includes the LLM judge's calls."""
        if not self._store.any:
            return
        row = record.event().request
        for budget in self._store.matching(row.key_prefix, row.agent):
            if budget.unit is BudgetUnit.COST:
                self._count_cost(budget, row)
            elif budget.unit is BudgetUnit.TOKENS and (tokens := _tokens(row)):
                self._add(budget, datetime.now(UTC), tokens)

    def _count_cost(self, budget: Budget, row: RequestRow) -> None:
        costs = [self._cost_of_reply(row)] if _tokens(row) else []
        judge = row.extra.get("llm")
        if judge is not None:
            costs.append(None if judge["cost_usd"] is None else Decimal(str(judge["cost_usd"])))
        if None in costs:
            models = [row.resolved_model or row.model, *(judge["models"] if judge is not None else ())]
            _log.warning("budget_unpriced", budget=budget.id, models=models)
        if costs:
            known = sum(cost for cost in costs if cost is not None)
            self._add(budget, datetime.now(UTC), int(known * NANO), unpriced=int(None in costs))

    def _cost_of_reply(self, row: RequestRow) -> Decimal | None:
        named = (row.resolved_model, row.model)
        prompt, completion = row.prompt_tokens or 0, row.completion_tokens or 0
        costs = (self._cost_of(model, prompt, completion) for model in named if model is not None)
        return next((cost for cost in costs if cost is not None), None)

    def _check_countable(self, budgets: Sequence[Budget], model: str | None, counts_tokens: bool) -> None:
        for budget in budgets:
            if budget.unit is BudgetUnit.REQUESTS or budget.uncounted == "allow":
                continue
            if not counts_tokens:
                raise UncountedError(
                    f"The gateway can't count the {budget.unit} of requests on this path, and the budget of "
                    f"{budget.title()} blocks requests that it can't count."
                )
            if budget.unit is BudgetUnit.COST and (model is None or self._cost_of(model, 0, 0) is None):
                raise UncountedError(
                    f"The model {model!r:.200} has no known price, and the budget of {budget.title()} blocks requests "
                    "that it can't count. An operator can add the price to the file in GROUNDLANE_PRICES."
                )

    # Pending counts

    def _add(self, budget: Budget, now: datetime, used: int, *, unpriced: int = 0) -> None:
        name = budget.id, period_of(budget.period, now)
        before = self._waiting.get(name, (0, 0))
        self._waiting[name] = before[0] + used, before[1] + unpriced
        self._new.set()

    def _take_waiting(self) -> _Counts:
        waiting, self._waiting = self._waiting, {}
        return waiting

    def _put_back(self, waiting: _Counts) -> None:
        for name, (used, unpriced) in waiting.items():
            before = self._waiting.get(name, (0, 0))
            self._waiting[name] = before[0] + used, before[1] + unpriced
        if self._waiting:
            self._new.set()

    async def _write_waiting(self) -> None:
        while True:
            await self._new.wait()
            written = await self._flush()
            await asyncio.sleep(_WRITTEN_EVERY_S if written else _RETRY_S)

    async def _flush(self) -> bool:
        return await asyncio.shield(self._transactions.start(self._write()))

    async def _write(self) -> bool:
        self._new.clear()
        waiting = self._take_waiting()
        if not waiting:
            return True
        try:
            await self._database.transact(lambda connection: _write(connection, self._database, waiting))
        except DatabaseUnavailableError:
            self._put_back(waiting)
            return False
        except BaseException:
            self._put_back(waiting)
            raise
        return True


def _tokens(row: RequestRow) -> int:
    return (row.prompt_tokens or 0) + (row.completion_tokens or 0)


def _admit(
    connection: Connection, database: Database, budgets: Sequence[Budget], waiting: _Counts, now: datetime
) -> None:
    _write(connection, database, waiting)
    columns = budget_usage.c
    for budget in budgets:
        period = period_of(budget.period, now)
        row = (columns.budget_id == budget.id) & (columns.period == period)
        used = 0
        if budget.unit is BudgetUnit.REQUESTS:
            _ensure(connection, database, budget.id, period)
            one_more = update(budget_usage).where(row, columns.used < budget.most).values(used=columns.used + 1)
            if connection.execute(one_more).rowcount:
                continue
            used = budget.most
        else:
            used = connection.execute(select(columns.used).where(row)).scalar() or 0
        if used >= budget.most:
            raise exhausted(budget, used, now)


def _write(connection: Connection, database: Database, waiting: _Counts) -> None:
    columns = budget_usage.c
    for (budget, period), (used, unpriced) in sorted(waiting.items()):
        _ensure(connection, database, budget, period)
        row = (columns.budget_id == budget) & (columns.period == period)
        values = {"used": columns.used + used, "unpriced": columns.unpriced + unpriced}
        connection.execute(update(budget_usage).where(row).values(**values))


def _ensure(connection: Connection, database: Database, budget: str, period: str) -> None:
    row = {"budget_id": budget, "period": period, "used": 0, "unpriced": 0}
    connection.execute(database.insert_ignore(budget_usage), [row])
