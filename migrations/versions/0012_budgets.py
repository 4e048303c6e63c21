"""Add budgets of keys and agents, and their usage."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "budgets",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("unit", sa.String(), nullable=False),
        sa.Column("period", sa.String(), nullable=False),
        sa.Column("limit", sa.BigInteger(), nullable=False),
        sa.Column("uncounted", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_budgets"),
        sa.UniqueConstraint("subject", "name", "unit", "period", name="uq_budgets_subject_name_unit_period"),
    )
    op.create_table(
        "budget_usage",
        sa.Column("budget_id", sa.String(), nullable=False),
        sa.Column("period", sa.String(), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.Column("unpriced", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("budget_id", "period", name="pk_budget_usage"),
    )


def downgrade() -> None:
    op.drop_table("budget_usage")
    op.drop_table("budgets")
