"""Periods and amounts of budgets."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from app.budgets.budget import BudgetUnit, Period, counted, period_of, resets_at, shown


@pytest.mark.parametrize(
    ("period", "now", "name", "reset"),
    [
        ("day", datetime(2026, 2, 28, 23, 59, tzinfo=UTC), "2026-02-28", datetime(2026, 3, 1, tzinfo=UTC)),
        ("month", datetime(2026, 12, 31, 23, tzinfo=UTC), "2026-12", datetime(2027, 1, 1, tzinfo=UTC)),
        ("month", datetime(2026, 1, 31, tzinfo=UTC), "2026-01", datetime(2026, 2, 1, tzinfo=UTC)),
        (
            "day",
            datetime(2026, 3, 1, 0, 30, tzinfo=timezone(timedelta(hours=1))),
            "2026-02-28",
            datetime(2026, 3, 1, tzinfo=UTC),
        ),
    ],
)
def test_periods_are_days_and_months_in_utc(period: Period, now: datetime, name: str, reset: datetime) -> None:
    assert (period_of(period, now), resets_at(period, now)) == (name, reset)


def test_costs_are_counted_exactly() -> None:
    assert sum([counted(BudgetUnit.COST, Decimal("0.1"))] * 3) == counted(BudgetUnit.COST, Decimal("0.3"))
    assert shown(BudgetUnit.COST, counted(BudgetUnit.COST, Decimal("0.00000015"))) == Decimal("0.00000015")
    assert counted(BudgetUnit.TOKENS, Decimal(5)) == 5
