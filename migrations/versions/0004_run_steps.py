"""Add the steps of runs, and link decisions to runs."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "run_steps",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("ts", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("key", sa.String()),
        sa.Column("data", JSON, nullable=False),
        sa.Column("decisions", JSON, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_run_steps_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_run_steps"),
    )
    op.create_index("ix_decisions_run_id_ts_id", "decisions", ["run_id", "ts", "id"])


def downgrade() -> None:
    op.drop_index("ix_decisions_run_id_ts_id", "decisions")
    op.drop_table("run_steps")
