"""Alembic's environment and the schema migrations."""
