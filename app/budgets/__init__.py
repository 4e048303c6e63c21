"""Budgets limit the requests, tokens or cost that a gateway key or an agent may use per day or month."""

from app.budgets.budget import Budget, BudgetDraft, BudgetUnit, Period, Subject, Uncounted
from app.budgets.budget_guard import BudgetGuard
from app.budgets.budget_store import BudgetStore, StoredBudget

__all__ = [
    "Budget",
    "BudgetDraft",
    "BudgetGuard",
    "BudgetStore",
    "BudgetUnit",
    "Period",
    "StoredBudget",
    "Subject",
    "Uncounted",
]
