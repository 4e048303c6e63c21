"""Add canaries, shadow decisions, workers, and the data for replaying the decisions on a request."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    # Added in place: batch mode copies the table on SQLite, which would delete its child rows.
    for table in ("policies", "policy_versions"):
        op.add_column(table, sa.Column("canary_percent", sa.Integer(), nullable=False, server_default="100"))
    op.add_column("decisions", sa.Column("shadow", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("requests", sa.Column("extra", JSON, nullable=False, server_default="{}"))
    op.create_table(
        "workers",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("versions", JSON, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("loaded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )


def downgrade() -> None:
    op.drop_table("workers")
    op.drop_column("requests", "extra")
    op.drop_column("decisions", "shadow")
    for table in ("policy_versions", "policies"):
        op.drop_column(table, "canary_percent")
