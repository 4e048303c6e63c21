"""A budget, its period, and the error for requests that exceed it."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from app.errors import BudgetError

NANO = Decimal("1e9")
"""Costs are stored as integers, in billionths of a US dollar, so that sums are exact."""

Subject = Literal["key", "agent"]
Period = Literal["day", "month"]
Uncounted = Literal["block", "allow"]


class BudgetUnit(StrEnum):
    REQUESTS = "requests"
    TOKENS = "tokens"
    COST = "cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetDraft:
    """A budget to create. ``name`` is the prefix of a key or the name of an agent, depending on ``subject``. The
    ``limit`` of a cost budget is in US dollars. ``uncounted`` says whether to block or allow requests that the budget
    can't count. A cost budget can't count requests to a model without a known price. Token and cost budgets can't count
    requests on paths whose replies the gateway doesn't read."""

    subject: Subject
    name: str
    unit: BudgetUnit
    period: Period
    limit: Decimal
    uncounted: Uncounted = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(BudgetDraft):
    """A stored budget."""

    id: str

    @property
    def most(self) -> int:
        """The limit as a stored integer."""
        return counted(self.unit, self.limit)

    def title(self) -> str:
        """Describe the budget, for error messages."""
        amount = f"{self.limit.normalize():f}"
        limit = f"${amount}" if self.unit is BudgetUnit.COST else f"{amount} {self.unit}"
        return f"{limit} per {self.period} for the {self.subject} {self.name!r}"


def counted(unit: BudgetUnit, amount: Decimal) -> int:
    """Convert ``amount`` to the stored integer."""
    return int(amount * NANO) if unit is BudgetUnit.COST else int(amount)


def shown(unit: BudgetUnit, stored: int) -> Decimal:
    """Convert a stored integer to requests, tokens or US dollars."""
    return Decimal(stored) / NANO if unit is BudgetUnit.COST else Decimal(stored)


def period_of(period: Period, now: datetime) -> str:
    """Return the day (``2026-11-29``) or month (``2026-11``) of ``now``, in UTC."""
    return f"{now.astimezone(UTC):{'%Y-%m-%d' if period == 'day' else '%Y-%m'}}"


def resets_at(period: Period, now: datetime) -> datetime:
    """Return the start of the next day or month, in UTC."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return today + timedelta(days=1)
    return (today.replace(day=1) + timedelta(days=32)).replace(day=1)


def exhausted(budget: Budget, used: int, now: datetime) -> BudgetError:
    """Build the error for a request whose ``budget`` is used up."""
    reset = resets_at(budget.period, now)
    left = shown(budget.unit, max(0, budget.most - used))
    error = BudgetError(
        f"The budget of {budget.title()} is used up. It resets at {reset:%Y-%m-%d %H:%M} UTC.",
        budget={
            "id": budget.id,
            "subject": budget.subject,
            "name": budget.name,
            "unit": budget.unit,
            "period": budget.period,
            "limit": float(budget.limit),
            "remaining": float(left),
            "resets_at": reset.isoformat().replace("+00:00", "Z"),
        },
    )
    error.headers.update(
        {
            "retry-after": str(max(1, math.ceil((reset - now).total_seconds()))),
            "x-should-retry": "false",  # Without this header, OpenAI and Anthropic clients retry a 429.
            "x-groundlane-budget": budget.id,
            "x-groundlane-budget-remaining": f"{left:f}",
            "x-groundlane-budget-reset": reset.isoformat().replace("+00:00", "Z"),
        }
    )
    return error
