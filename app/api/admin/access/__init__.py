"""Admin API access, and the budgets of keys and agents."""
