"""The pages of policies."""
