"""Separate feedback on replies from feedback on decisions."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("feedback", sa.Column("about", sa.String(), nullable=False, server_default="decision"))


def downgrade() -> None:
    op.drop_column("feedback", "about")
