"""The pages for tokens, sessions and budgets."""
