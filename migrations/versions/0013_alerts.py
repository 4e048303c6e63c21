"""Add alert rules, with their destinations, history and messages."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(JSONB(), "postgresql")
TABLES = ("alert_rules", "alert_destinations", "alert_firings", "alert_deliveries")


def upgrade() -> None:
    time = sa.DateTime(timezone=True)
    op.create_table(
        "alert_rules",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("document", JSON, nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.Column("updated_at", time, nullable=False),
        sa.Column("due_at", time, nullable=False),
        sa.Column("checked_at", time),
        sa.Column("value", sa.Double()),
        sa.Column("requests", sa.Integer()),
        sa.Column("firing_id", sa.String()),
        sa.Column("resolved_at", time),
        sa.PrimaryKeyConstraint("id", name="pk_alert_rules"),
        sa.UniqueConstraint("name", name="uq_alert_rules_name"),
    )
    op.create_table(
        "alert_destinations",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.Column("updated_at", time, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_alert_destinations"),
        sa.UniqueConstraint("name", name="uq_alert_destinations_name"),
    )
    op.create_table(
        "alert_firings",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("rule_id", sa.String(), nullable=False),
        sa.Column("rule", JSON, nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("started_at", time, nullable=False),
        sa.Column("resolved_at", time),
        sa.Column("resolved_value", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_alert_firings"),
    )
    op.create_index("ix_alert_firings_started_at_id", "alert_firings", ["started_at", "id"])
    op.create_table(
        "alert_deliveries",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("firing_id", sa.String(), nullable=False),
        sa.Column("destination_id", sa.String(), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("next_at", time, nullable=False),
        sa.Column("sent_at", time),
        sa.Column("error", sa.String()),
        sa.PrimaryKeyConstraint("id", name="pk_alert_deliveries"),
    )
    op.create_index("ix_alert_deliveries_firing_id", "alert_deliveries", ["firing_id"])
    op.create_index("ix_alert_deliveries_status_next_at", "alert_deliveries", ["status", "next_at"])


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)
